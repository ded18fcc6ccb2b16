package blobstore_test

import (
	"strings"
	"testing"

	"cofferdam.dev/pkg/blob/blobstore"
)

func TestAddresses(t *testing.T) {
	for _, url := range []string{
		"", "/folder", "file://", "file:///", "file://host/folder", "file://./folder", "file:///folder?create_dir=1", "file:///folder#x", "file:folder", "mem://", "\x00",
		"s3://", "s3://B", "s3://ab", "s3://bucket/prefix", "s3://bucket#x", "s3://bucket?awssdk=v1", "s3://bucket?endpoint=minio:9000", "s3://bucket?region=", "s3://bucket?region=a&region=b",
		"s3://bucket?endpoint=http://10.0.0.1:9000", "s3://bucket?endpoint=http://localhost:9000", "s3://bucket?endpoint=https://host/path", "s3://bucket?endpoint=https://user@host",
		"s3://bucket?path_style=yes", "s3://bucket?%zz",
	} {
		for _, file := range []string{"", "/file"} {
			if err := (blobstore.Address{URL: url, CredentialsFile: file}).Validate(); err == nil {
				t.Errorf("%q was accepted", url)
			}
		}
	}
	for url, file := range map[string]string{
		"file:///var/lib/cofferdam/files": "",
		"s3://bucket":                     "/file",
		"s3://my.bucket-1?endpoint=https://s3.example.com:9000&region=eu-central-1&path_style=true": "/file",
		"s3://bucket?endpoint=http://127.0.0.1:9000":                                                "/file",
		"s3://bucket?endpoint=http://[::1]:9000/":                                                   "/file",
	} {
		if err := (blobstore.Address{URL: url, CredentialsFile: file}).Validate(); err != nil {
			t.Errorf("%q: %v", url, err)
		}
		if file == "" {
			file = "/file"
		} else {
			file = ""
		}
		if err := (blobstore.Address{URL: url, CredentialsFile: file}).Validate(); err == nil {
			t.Errorf("%q with the credentials %q was accepted", url, file)
		}
	}
	err := blobstore.Address{URL: "s3://key:hush@bucket", CredentialsFile: "/file"}.Validate()
	if err == nil || strings.Contains(err.Error(), "hush") {
		t.Errorf("got %v", err)
	}
}

func FuzzAddress(f *testing.F) {
	f.Add("s3://bucket?endpoint=https://host", "/file")
	f.Add("file:///folder", "")
	f.Fuzz(func(t *testing.T, url, file string) {
		err := blobstore.Address{URL: url, CredentialsFile: file}.Validate()
		if err == nil && !strings.HasPrefix(strings.ToLower(url), "file:") && !strings.HasPrefix(strings.ToLower(url), "s3:") {
			t.Fatalf("%q is an address", url)
		}
	})
}
