package gate

import (
	"encoding/json"
	"io"
	"net/http"
)

// HTTP serves the gate of a folder over streamable HTTP, without sessions. There is no
// stream in which it could ask anything, so that it has no tool ask.
func HTTP(folder string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		raw, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxLine))
		var call request
		if err != nil || json.Unmarshal(raw, &call) != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		if call.ID == nil { // a notification
			w.WriteHeader(http.StatusAccepted)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		s := server{folder: folder, out: w}
		s.answer(r.Context(), call)
	})
}
