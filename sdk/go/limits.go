package dramaturg

import (
	"fmt"
	"math"
	"regexp"
	"strings"
	"sync"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	commonv1 "dramaturg/api/common/v1"
)

// A Violation is an invalid field of a request.
type Violation struct {
	// Field is the path, e.g. "candidates[1].id".
	Field string
	// Description is the violation as text, e.g. "is missing or empty".
	Description string
}

// CheckLimits lists the fields of a request that break a limit that the contracts declare on it
// (dramaturg.api.common.v1.limits).
func CheckLimits(request proto.Message) []Violation {
	var found violations
	found.checkMessage(request.ProtoReflect(), "")
	return found
}

type violations []Violation

func (v *violations) add(field, format string, values ...any) {
	*v = append(*v, Violation{field, fmt.Sprintf(format, values...)})
}

func (v *violations) checkMessage(message protoreflect.Message, prefix string) {
	fields := message.Descriptor().Fields()
	for i := 0; i < fields.Len(); i++ {
		field := fields.Get(i)
		path := prefix + string(field.Name())
		limits, limited := proto.GetExtension(field.Options(), commonv1.E_Limits).(*commonv1.FieldLimits)
		if limited && limits != nil {
			v.checkField(message, field, path, limits)
		}
		if limits.GetContentsUnlimited() || field.Message() == nil || field.IsMap() || !message.Has(field) {
			continue
		}
		if !field.IsList() {
			v.checkMessage(message.Get(field).Message(), path+".")
			continue
		}
		list := message.Get(field).List()
		for place := 0; place < list.Len(); place++ {
			v.checkMessage(list.Get(place).Message(), fmt.Sprintf("%s[%d].", path, place))
		}
	}
}

func (v *violations) checkField(
	message protoreflect.Message, field protoreflect.FieldDescriptor, path string, limits *commonv1.FieldLimits,
) {
	value := message.Get(field)
	if limits.Required && missing(message, field, value) {
		v.add(path, "is missing or empty")
	}
	switch {
	case field.IsList():
		list := value.List()
		v.checkCount(list.Len(), path, limits)
		for place := 0; place < list.Len(); place++ {
			v.checkValue(list.Get(place), fmt.Sprintf("%s[%d]", path, place), limits)
		}
	case field.IsMap():
		v.checkCount(value.Map().Len(), path, limits)
		value.Map().Range(func(key protoreflect.MapKey, entry protoreflect.Value) bool {
			v.checkValue(key.Value(), path, limits)
			v.checkValue(entry, path, limits)
			return true
		})
	case message.Has(field) || !field.HasPresence():
		v.checkValue(value, path, limits)
	}
}

func (v *violations) checkCount(count int, path string, limits *commonv1.FieldLimits) {
	if limits.MaxItems > 0 && count > int(limits.MaxItems) {
		v.add(path, "has %d elements; at most %d are allowed", count, limits.MaxItems)
	}
	if count < int(limits.MinItems) {
		v.add(path, "has %d elements; at least %d are required", count, limits.MinItems)
	}
}

func (v *violations) checkValue(value protoreflect.Value, path string, limits *commonv1.FieldLimits) {
	most := int(limits.MaxLength)
	switch one := value.Interface().(type) {
	case string:
		if most > 0 && len(one) > most {
			if length := utf8.RuneCountInString(one); length > most {
				v.add(path, "has %d characters; at most %d are allowed", length, most)
			}
		}
		if limits.Pattern != "" && one != "" && !pattern(limits.Pattern).MatchString(one) {
			v.add(path, "does not match %s", limits.Pattern)
		}
	case []byte:
		if most > 0 && len(one) > most {
			v.add(path, "has %d bytes; at most %d are allowed", len(one), most)
		}
	case int32:
		v.checkNumber(float64(one), path, limits)
	case int64:
		v.checkNumber(float64(one), path, limits)
	case uint32:
		v.checkNumber(float64(one), path, limits)
	case uint64:
		v.checkNumber(float64(one), path, limits)
	case float32:
		v.checkNumber(float64(one), path, limits)
	case float64:
		v.checkNumber(one, path, limits)
	}
}

func (v *violations) checkNumber(number float64, path string, limits *commonv1.FieldLimits) {
	bounded := limits.Minimum != nil || limits.Maximum != nil
	switch {
	case bounded && (math.IsNaN(number) || math.IsInf(number, 0)):
		v.add(path, "is not a finite number")
	case limits.Minimum != nil && number < *limits.Minimum:
		v.add(path, "is %v; the least is %v", number, *limits.Minimum)
	case limits.Maximum != nil && number > *limits.Maximum:
		v.add(path, "is %v; the most is %v", number, *limits.Maximum)
	}
}

func missing(message protoreflect.Message, field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
	if field.Kind() == protoreflect.StringKind && !field.IsList() {
		return strings.TrimSpace(value.String()) == ""
	}
	return !message.Has(field)
}

var patterns sync.Map

// pattern compiles a regular expression that matches whole strings, once.
func pattern(text string) *regexp.Regexp {
	if known, ok := patterns.Load(text); ok {
		return known.(*regexp.Regexp)
	}
	compiled := regexp.MustCompile(`\A(?:` + text + `)\z`)
	patterns.Store(text, compiled)
	return compiled
}
