package model

import (
	"encoding/json"
	"errors"
)

// Members are the members of a tool's schema, each as it came.
func (o Offer) Members() (map[string]any, error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(o.Schema, &members); err != nil {
		return nil, err
	}
	if members == nil {
		return nil, errors.New("a schema that is no object")
	}
	schema := make(map[string]any, len(members))
	for name, value := range members {
		schema[name] = value
	}
	return schema, nil
}
