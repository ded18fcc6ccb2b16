package proxy

// modelList is what both wires that have a list of models call one.
type modelList struct {
	Object  string  `json:"object"`
	Data    []model `json:"data"`
	HasMore bool    `json:"has_more"`
	FirstID string  `json:"first_id"`
	LastID  string  `json:"last_id"`
}

type model struct {
	ID          string `json:"id"`
	Object      string `json:"object"`
	Type        string `json:"type"`
	DisplayName string `json:"display_name"`
	Created     int64  `json:"created"`
	CreatedAt   string `json:"created_at"`
	OwnedBy     string `json:"owned_by"`
}

// list answers with the one model that there is for this capability: its alias.
func (r *response) list(alias string) error {
	body, err := encode(modelList{Object: "list", FirstID: alias, LastID: alias, Data: []model{{
		ID: alias, Object: "model", Type: "model", DisplayName: alias, CreatedAt: "1970-01-01T00:00:00Z", OwnedBy: "cofferdam",
	}}})
	if err != nil {
		return err
	}
	return r.whole(body)
}
