package dramaturg

import (
	"fmt"
	"sort"

	commonv1 "dramaturg/api/common/v1"
)

// Passed makes the verdict that a criterion is met.
func Passed(criterion string) *commonv1.Verdict {
	return &commonv1.Verdict{Criterion: criterion, Outcome: commonv1.Outcome_OUTCOME_PASS}
}

// Failed makes the verdict that a criterion is not met, with the faults found.
func Failed(criterion string, findings ...*commonv1.Finding) *commonv1.Verdict {
	return &commonv1.Verdict{
		Criterion: criterion, Outcome: commonv1.Outcome_OUTCOME_FAIL, Findings: findings,
	}
}

// Scored makes the verdict on a criterion with a scale. The score is on it.
func Scored(criterion string, score float64) *commonv1.Verdict {
	return &commonv1.Verdict{Criterion: criterion, Outcome: commonv1.Outcome_OUTCOME_SCORED, Score: &score}
}

// Abstained makes the verdict that there is no judgement, with its reason, also in words.
func Abstained(criterion string, reason commonv1.AbstainReason, rationale string) *commonv1.Verdict {
	return &commonv1.Verdict{
		Criterion:     criterion,
		Outcome:       commonv1.Outcome_OUTCOME_ABSTAIN,
		AbstainReason: reason,
		Rationale:     rationale,
	}
}

// NewFinding makes a fault. The steps are indices into the candidate's steps, from 0; they are sorted, each once.
func NewFinding(kind commonv1.FindingKind, description string, steps ...int) *commonv1.Finding {
	sorted := append([]int(nil), steps...)
	sort.Ints(sorted)
	made := &commonv1.Finding{Kind: kind, Description: description}
	for i, step := range sorted {
		if i == 0 || step != sorted[i-1] {
			made.StepIndices = append(made.StepIndices, uint32(step))
		}
	}
	return made
}

// emptyCandidate makes the verdicts on a candidate without content.
func emptyCandidate(criteria []string) []*commonv1.Verdict {
	const rationale = "The candidate has no content."
	made := make([]*commonv1.Verdict, len(criteria))
	for i, criterion := range criteria {
		switch criterion {
		case "no_missing_steps", "completes_goal":
			made[i] = Failed(criterion)
			made[i].Rationale = rationale
		default:
			made[i] = Abstained(criterion, commonv1.AbstainReason_ABSTAIN_REASON_NOT_APPLICABLE, rationale)
		}
	}
	return made
}

// inOrder returns one verdict for each criterion, in order. A criterion without a verdict abstains (NOT_SUPPORTED);
// verdicts on criteria in own that were not asked for are left out. A verdict on any other criterion, and a second
// verdict on one, are errors.
func inOrder(given []*commonv1.Verdict, criteria []string, own []string) ([]*commonv1.Verdict, error) {
	known := make(map[string]*commonv1.Verdict, len(given))
	for _, verdict := range given {
		criterion := verdict.GetCriterion()
		if known[criterion] != nil {
			return nil, fmt.Errorf("two verdicts on %q", criterion)
		}
		if !contains(criteria, criterion) && !contains(own, criterion) {
			return nil, fmt.Errorf("a verdict on %q, which was not asked for", criterion)
		}
		known[criterion] = verdict
	}
	ordered := make([]*commonv1.Verdict, len(criteria))
	for i, criterion := range criteria {
		ordered[i] = known[criterion]
		if ordered[i] == nil {
			const rationale = "The judge gave no verdict."
			ordered[i] = Abstained(criterion, commonv1.AbstainReason_ABSTAIN_REASON_NOT_SUPPORTED, rationale)
		}
	}
	return ordered, nil
}

func contains(texts []string, text string) bool {
	for _, one := range texts {
		if one == text {
			return true
		}
	}
	return false
}
