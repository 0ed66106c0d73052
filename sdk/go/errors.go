package dramaturg

import (
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	commonv1 "dramaturg/api/common/v1"
)

// Domain is ErrorInfo.domain of every error of this API.
const Domain = "dramaturg.api"

// NewError makes an error with its reason (AIP-193). The metadata is that of the reason, and may be nil.
func NewError(code codes.Code, reason commonv1.ErrorReason, message string, metadata map[string]string) error {
	return withInfo(code, reason, message, metadata).Err()
}

// NewRetryableError makes an error that tells callers when to repeat the call.
func NewRetryableError(
	code codes.Code, reason commonv1.ErrorReason, message string, metadata map[string]string, after time.Duration,
) error {
	made := withInfo(code, reason, message, metadata)
	return detailed(made.WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(after)})).Err()
}

// InvalidArgument makes the error of invalid fields: INVALID_ARGUMENT with every one of them.
func InvalidArgument(found []Violation) error {
	texts := make([]string, len(found))
	fields := make([]*errdetails.BadRequest_FieldViolation, len(found))
	for i, one := range found {
		texts[i] = one.Field + " " + one.Description
		fields[i] = &errdetails.BadRequest_FieldViolation{Field: one.Field, Description: one.Description}
	}
	made := withInfo(
		codes.InvalidArgument, commonv1.ErrorReason_ERROR_REASON_FIELD_INVALID, strings.Join(texts, "; "), nil,
	)
	return detailed(made.WithDetails(&errdetails.BadRequest{FieldViolations: fields})).Err()
}

// ReasonOf returns the reason of an error of this API; ERROR_REASON_UNSPECIFIED of other errors.
func ReasonOf(err error) commonv1.ErrorReason {
	for _, detail := range status.Convert(err).Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok && info.Domain == Domain {
			return commonv1.ErrorReason(commonv1.ErrorReason_value[info.Reason])
		}
	}
	return commonv1.ErrorReason_ERROR_REASON_UNSPECIFIED
}

// ViolationsOf returns the invalid fields that an error names.
func ViolationsOf(err error) []Violation {
	var found []Violation
	for _, detail := range status.Convert(err).Details() {
		if bad, ok := detail.(*errdetails.BadRequest); ok {
			for _, one := range bad.FieldViolations {
				found = append(found, Violation{one.Field, one.Description})
			}
		}
	}
	return found
}

func withInfo(
	code codes.Code, reason commonv1.ErrorReason, message string, metadata map[string]string,
) *status.Status {
	info := &errdetails.ErrorInfo{Reason: reason.String(), Domain: Domain, Metadata: metadata}
	return detailed(status.New(code, message).WithDetails(info))
}

// detailed panics where a detail cannot be added, which is the case for codes.OK alone.
func detailed(made *status.Status, err error) *status.Status {
	if err != nil {
		panic(err)
	}
	return made
}
