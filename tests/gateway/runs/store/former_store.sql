BEGIN TRANSACTION;
CREATE TABLE dataset_chunks (
	dataset BIGINT NOT NULL, 
	position BIGINT NOT NULL, 
	content BLOB NOT NULL, 
	PRIMARY KEY (dataset, position), 
	FOREIGN KEY(dataset) REFERENCES datasets (number)
);
CREATE TABLE datasets (
	number INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	tenant TEXT NOT NULL, 
	id TEXT, 
	display_name TEXT NOT NULL, 
	format SMALLINT NOT NULL, 
	byte_count BIGINT NOT NULL, 
	received BIGINT NOT NULL, 
	ready BOOLEAN NOT NULL, 
	create_time BIGINT NOT NULL, 
	update_time BIGINT NOT NULL, 
	UNIQUE (tenant, id)
);
CREATE TABLE item_labels (
	label_set BIGINT NOT NULL, 
	position INTEGER NOT NULL, 
	annotator TEXT NOT NULL, 
	label TEXT NOT NULL, 
	note TEXT NOT NULL, 
	update_time BIGINT NOT NULL, 
	PRIMARY KEY (label_set, position, annotator), 
	FOREIGN KEY(label_set) REFERENCES label_sets (number)
);
CREATE TABLE judges (
	tenant TEXT NOT NULL, 
	role TEXT NOT NULL, 
	name TEXT NOT NULL, 
	registration BLOB NOT NULL, 
	revision BIGINT NOT NULL, 
	PRIMARY KEY (tenant, role, name)
);
CREATE TABLE label_items (
	label_set BIGINT NOT NULL, 
	position INTEGER NOT NULL, 
	item BLOB NOT NULL, 
	sample_id TEXT NOT NULL, 
	model TEXT NOT NULL, 
	opponent TEXT NOT NULL, 
	judged DOUBLE, 
	PRIMARY KEY (label_set, position), 
	FOREIGN KEY(label_set) REFERENCES label_sets (number)
);
CREATE TABLE label_sets (
	number INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	id TEXT NOT NULL, 
	tenant TEXT NOT NULL, 
	request_id TEXT, 
	description BLOB NOT NULL, 
	create_time BIGINT NOT NULL, 
	UNIQUE (tenant, request_id), 
	UNIQUE (id)
);
CREATE TABLE run_executors (
	id TEXT NOT NULL, 
	expires BIGINT NOT NULL, 
	PRIMARY KEY (id)
);
CREATE TABLE run_judges (
	run BIGINT NOT NULL, 
	role TEXT NOT NULL, 
	judge TEXT NOT NULL, 
	name TEXT NOT NULL, 
	version TEXT NOT NULL, 
	seen BIGINT NOT NULL, 
	PRIMARY KEY (run, role, judge, name, version), 
	FOREIGN KEY(run) REFERENCES runs (number)
);
CREATE TABLE run_labels (
	run BIGINT NOT NULL, 
	"key" TEXT NOT NULL, 
	value TEXT NOT NULL, 
	PRIMARY KEY (run, "key"), 
	FOREIGN KEY(run) REFERENCES runs (number)
);
CREATE TABLE run_model_usage (
	run BIGINT NOT NULL, 
	model TEXT NOT NULL, 
	usage BLOB NOT NULL, 
	PRIMARY KEY (run, model), 
	FOREIGN KEY(run) REFERENCES runs (number)
);
INSERT INTO "run_model_usage" VALUES(1,'m',X'08052001');
CREATE TABLE run_outcomes (
	run BIGINT NOT NULL, 
	sample BIGINT NOT NULL, 
	message BLOB NOT NULL, 
	PRIMARY KEY (run, sample), 
	FOREIGN KEY(run) REFERENCES runs (number)
);
INSERT INTO "run_outcomes" VALUES(1,0,X'785E136094622A365060D24A948AE76249AA54C81562CC9512E1624A361060B4E2494A4D4E2C2D4E55C84F533050B2832A604B2ECA2CC94C96622B2E29CA4C2E5152E3C2AA5E888F0BAAD288858355813182318B978B3527B52C3547882523B1280500D80F1D8A');
CREATE TABLE run_results (
	run BIGINT NOT NULL, 
	sample BIGINT NOT NULL, 
	place INTEGER NOT NULL, 
	model TEXT NOT NULL, 
	candidate TEXT NOT NULL, 
	measure TEXT NOT NULL, 
	outcome SMALLINT NOT NULL, 
	reason SMALLINT NOT NULL, 
	value DOUBLE, 
	confidence DOUBLE, 
	label TEXT NOT NULL, 
	role TEXT NOT NULL, 
	judge TEXT NOT NULL, 
	PRIMARY KEY (run, sample, place), 
	FOREIGN KEY(run) REFERENCES runs (number)
)
 WITHOUT ROWID

;
INSERT INTO "run_results" VALUES(1,0,0,'m','by m','c0',1,0,1.0,NULL,'','critic','strict');
CREATE TABLE run_rows (
	run BIGINT NOT NULL, 
	sample BIGINT NOT NULL, 
	line BIGINT NOT NULL, 
	sample_id TEXT NOT NULL, 
	tags TEXT NOT NULL, 
	request BLOB, 
	PRIMARY KEY (run, sample), 
	FOREIGN KEY(run) REFERENCES runs (number)
);
INSERT INTO "run_rows" VALUES(1,0,1,'s0','{"level":"hard"}',X'785E2B4A2D2C4D2D2E513000001299035A');
INSERT INTO "run_rows" VALUES(1,1,2,'s1','{"level":"easy"}',X'785E2B4A2D2C4D2D2E51300400129A035B');
CREATE TABLE run_samples (
	run BIGINT NOT NULL, 
	sample BIGINT NOT NULL, 
	state SMALLINT NOT NULL, 
	valid BOOLEAN NOT NULL, 
	executor TEXT, 
	crashes INTEGER NOT NULL, 
	failure TEXT, 
	missing_gold_answer TEXT, 
	PRIMARY KEY (run, sample), 
	FOREIGN KEY(run) REFERENCES runs (number)
)
 WITHOUT ROWID

;
INSERT INTO "run_samples" VALUES(1,0,2,1,NULL,0,NULL,NULL);
INSERT INTO "run_samples" VALUES(1,1,1,1,'gateway-1',0,NULL,NULL);
CREATE TABLE run_schema (
	version INTEGER NOT NULL, 
	PRIMARY KEY (version)
);
INSERT INTO "run_schema" VALUES(11);
CREATE TABLE run_specs (
	run BIGINT NOT NULL, 
	spec BLOB NOT NULL, 
	manifest BLOB, 
	content BLOB NOT NULL, 
	PRIMARY KEY (run), 
	FOREIGN KEY(run) REFERENCES runs (number)
);
INSERT INTO "run_specs" VALUES(1,X'0A05612072756E120212001A00',X'1A0178',X'785E030000000001');
CREATE TABLE run_spending (
	tenant TEXT NOT NULL, 
	day INTEGER NOT NULL, 
	tokens BIGINT NOT NULL, 
	usd DOUBLE NOT NULL, 
	PRIMARY KEY (tenant, day)
);
INSERT INTO "run_spending" VALUES('',20782,5,0.0);
CREATE TABLE run_writers (
	id TEXT NOT NULL, 
	operation BIGINT NOT NULL, 
	time BIGINT NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO "run_writers" VALUES('efbb7f0aa86443d59625cc0a924ab841',7,1795612332);
CREATE TABLE runs (
	number INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	id TEXT NOT NULL, 
	tenant TEXT NOT NULL, 
	request_id TEXT, 
	digest BLOB NOT NULL, 
	state SMALLINT NOT NULL, 
	state_reason TEXT NOT NULL, 
	outcome SMALLINT NOT NULL, 
	attempt INTEGER NOT NULL, 
	repeat_offset INTEGER NOT NULL, 
	version TEXT NOT NULL, 
	create_time BIGINT NOT NULL, 
	update_time BIGINT NOT NULL, 
	start_time BIGINT, 
	end_time BIGINT, 
	deleted BOOLEAN NOT NULL, 
	preparations INTEGER DEFAULT '0' NOT NULL, 
	samples BIGINT NOT NULL, 
	succeeded BIGINT NOT NULL, 
	failed BIGINT NOT NULL, 
	judgements BIGINT NOT NULL, 
	interrupted BIGINT NOT NULL, 
	abstentions TEXT NOT NULL, 
	failures TEXT NOT NULL, 
	usage BLOB NOT NULL, 
	gold_answers BLOB, 
	throughput TEXT NOT NULL, 
	incident BLOB, 
	cursor BIGINT NOT NULL, 
	state_cursor BIGINT NOT NULL, 
	state_time BIGINT NOT NULL, 
	progress_cursor BIGINT NOT NULL, 
	progress_time BIGINT, 
	UNIQUE (tenant, request_id), 
	UNIQUE (id)
);
INSERT INTO "runs" VALUES(1,'run','',NULL,X'F5075E4E3FBFD5281101E69BD1F571BDA2A9C319D4566CE3A2E869320D43DBFB',2,'',0,1,0,'',1795612332412448,1795612332506913,1795612332463156,NULL,0,0,2,1,0,1,0,'{}','{}',X'08052001',X'','[[1795612332463092,0],[1795612332489566,1]]',NULL,5,4,1795612332463153,5,1795612332506853);
CREATE INDEX runs_by_age ON runs (tenant, create_time, id);
CREATE INDEX runs_deleted ON runs (number) WHERE deleted;
CREATE INDEX run_samples_by_state ON run_samples (run, state, sample);
CREATE INDEX run_samples_begun ON run_samples (run) WHERE executor IS NOT NULL;
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('runs',1);
COMMIT;
