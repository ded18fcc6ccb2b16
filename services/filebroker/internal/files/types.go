package files

import (
	"slices"
	"strings"

	"cofferdam.dev/pkg/fault"
)

// takes checks what is announced against what an upload handle allows, and gives it
// cleaned.
func (h Handle) takes(i Info) (Info, error) {
	i, err := i.clean(h.MaxBytes)
	if err != nil {
		return i, err
	}
	kind, _, _ := strings.Cut(i.MIME, "/")
	types := strings.Fields(h.Types)
	if len(types) > 0 && !slices.Contains(types, i.MIME) && !slices.Contains(types, kind+"/*") {
		return i, fault.New(fault.InvalidRequest, "files.type", fault.Detail("info.mime_type: not among those of the handle"))
	}
	return i, nil
}
