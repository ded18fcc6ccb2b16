package strictjson

import "encoding/json"

// Canonical gives the one text of all documents that mean the same: keys sorted,
// no insignificant white space, each character written in one way. Numbers keep
// their text. The error is an *Error.
func Canonical(data []byte, o Options) ([]byte, error) {
	var v any
	if err := Unmarshal(data, &v, o); err != nil {
		return nil, err
	}
	return json.Marshal(v)
}
