BEGIN TRANSACTION;
CREATE TABLE dramaturg_calls (
	process TEXT NOT NULL, 
	number BIGINT NOT NULL, 
	fingerprint TEXT NOT NULL, 
	sent_at DOUBLE NOT NULL, 
	abandoned BOOLEAN DEFAULT 0 NOT NULL, 
	unstored BOOLEAN DEFAULT 0 NOT NULL, 
	PRIMARY KEY (process, number)
);
INSERT INTO "dramaturg_calls" VALUES('0519e91a111e45eb864103cbc6b3cdc2',1,'lost',1.79561233322362780572e+09,0,0);
CREATE TABLE dramaturg_completions (
	fingerprint TEXT NOT NULL, 
	recorded_at DOUBLE NOT NULL, 
	purchases TEXT NOT NULL, 
	PRIMARY KEY (fingerprint)
);
INSERT INTO "dramaturg_completions" VALUES('f',1.79561233320567107197e+09,'[{"fingerprint":"f","provider":"p","requested_model":"m","answer":{"text":"stored","finish":"stop","latency":0.0}}]');
CREATE TABLE dramaturg_leases (
	id TEXT NOT NULL, 
	machine TEXT NOT NULL, 
	pid BIGINT NOT NULL, 
	started TEXT NOT NULL, 
	expires BIGINT NOT NULL, 
	PRIMARY KEY (id)
);
CREATE TABLE dramaturg_ledger (
	version INTEGER NOT NULL, 
	PRIMARY KEY (version)
);
INSERT INTO "dramaturg_ledger" VALUES(4);
COMMIT;
