package secrets

// own rules, for what the others leave: a secret that is cut off in the middle, a
// header, an address with a password in it.
func own() []*rule {
	return []*rule{
		{
			ID: "private-key-begun", Keywords: []string{"private key"},
			Regex: `-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----(?s:.*?)(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----|\z)`,
		},
		{
			ID: "bearer", Keywords: []string{"bearer"},
			Regex: `(?i)\bbearer\s+([A-Za-z0-9._~+/=-]{16,})`, Entropy: 3,
		},
		{
			ID: "basic", Keywords: []string{"basic"},
			Regex: `(?i)\bauthorization["']?\s*[:=]\s*["']?basic\s+([A-Za-z0-9+/=]{8,})`,
		},
		{
			ID: "password-in-address", Keywords: []string{"://"},
			Regex: `[a-zA-Z][a-zA-Z0-9+.-]{1,31}://[^\s/:@"'<>]{0,128}:([^\s/@"'<>]{3,256})@`,
		},
		{
			ID: "password-said", Keywords: []string{"password", "passphrase", "passwd", "passcode"},
			Regex:   `(?i)\b(?:password|passphrase|passwd|passcode)\b(?:\s+(?:is|was)|["']?\s*[:=])\s*["'\x60]?([^\s"'\x60,;]*[0-9!@#$%^&*+=_-][^\s"'\x60,;]*)`,
			Entropy: 2,
		},
	}
}
