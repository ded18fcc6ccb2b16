package storeaddr_test

import (
	"strings"
	"testing"

	"cofferdam.dev/pkg/storeaddr"
)

func TestAddresses(t *testing.T) {
	const secret = "s3cret-canary"
	for location, want := range map[string]string{
		"/var/lib/cofferdam/records.db": "",
		"records.db":                    "",
		"mongodb://host":                "",
		"mongodb://user@host/database":  "",
		"mongodb://user@a:27017,b:27017/database?replicaSet=rs":             "",
		"mongodb+srv://user@cluster.example/database?tlsCAFile=/etc/ca.pem": "",
		"":                                   "required",
		"https://" + secret:                  "neither",
		"mongodb://":                         "not a URI",
		"mongodb://a b:" + secret + "@%zz":   "not a URI",
		"mongodb://user:" + secret + "@host": "leave the password out",
		"mongodb://user:@host":               "leave the password out",
		"mongodb://user@host/?tlsCertificateKeyFilePassword=" + secret:             "leave the password out",
		"mongodb://user@host/?authMechanismProperties=AWS_SESSION_TOKEN:" + secret: "leave the password out",
		"mongodb://user@host/one/" + secret:                                        "one database",
	} {
		err := storeaddr.Address{Location: location}.Validate()
		if (err == nil) != (want == "") || err != nil && (!strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "canary")) {
			t.Errorf("%s: got %v, want %q", location, err, want)
		}
	}
}

func TestFlags(t *testing.T) {
	file, db, anonymous := storeaddr.Named{Flag: "store", Location: "x.db"}, storeaddr.Named{Flag: "store", Location: "mongodb://u@h/d"},
		storeaddr.Named{Flag: "state-store", Location: "mongodb://h/d"}
	for _, tt := range []struct {
		password string
		stores   []storeaddr.Named
		want     string
	}{
		{"", []storeaddr.Named{file, anonymous}, ""},
		{"p", []storeaddr.Named{file, db}, ""},
		{"p", []storeaddr.Named{file}, "--store-password-file: only beside"},
		{"p", []storeaddr.Named{db, anonymous}, "--state-store: a password file needs a user"},
	} {
		err := storeaddr.ValidateFlags(tt.password, tt.stores...)
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v: got %v, want %q", tt.stores, err, tt.want)
		}
	}
}
