package cli

import (
	"errors"
	"fmt"
	"strings"
	"syscall"

	"cofferdam.dev/pkg/fault"
)

// explain says to people what an error is and what to do about it.
func explain(err error) string {
	if e, ok := errors.AsType[*fault.Error](err); ok {
		safe := e.Safe()
		text := safe.Message
		if safe.Detail != "" {
			text += " (" + safe.Detail + ")"
		}
		return fmt.Sprintf("%s [%s, incident %s]", text, safe.Code, safe.IncidentID)
	}
	text := strings.TrimPrefix(err.Error(), errUsage.Error()+": ")
	if errors.Is(err, syscall.ECONNREFUSED) {
		text += "\nnobody answers there: is `cofferdam up` running on this data folder?"
	}
	return text
}
