// Package blobstore has the back ends of blob stores: a folder, and a bucket of an S3
// server. Each passes the suite in blobtest.
package blobstore

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"path/filepath"
	"regexp"

	"cofferdam.dev/pkg/blob"
)

const (
	folderScheme = "file"
	s3Scheme     = "s3"
	// defaultRegion is what a server that is not Amazon's is called by.
	defaultRegion = "us-east-1"
)

// Usage is what the help of a service says of a URL, after what is kept there.
const Usage = "`URL` of a folder, file:///path, made with mode 0700 if it is not there; or of a bucket, s3://BUCKET?endpoint=https://HOST&region=REGION&path_style=true"

// CredentialsUsage is what it says of the file with the credentials.
const CredentialsUsage = "`file` with the credentials of an s3:// address in the form of AWS's shared credentials file, profile default, mode 0600 (default none)"

// Store is an open store.
type Store interface {
	blob.Store
	// Check asks whether the store answers.
	Check(ctx context.Context) error
	// Close gives up what Open took.
	Close() error
}

// Address of a store.
type Address struct {
	// URL is file:///absolute/path of a folder, or s3://BUCKET with the parameters
	// endpoint (https, or http on loopback; Amazon's by default), region and path_style.
	URL string
	// CredentialsFile of an S3 server; empty for a folder. It is read again every
	// minute, so that what it holds can be rotated.
	CredentialsFile string
}

// Validate says what is wrong with it.
func (a Address) Validate() error {
	_, _, err := a.parse()
	return err
}

// Open opens the store at an address. A folder is made if it is not there; it is for
// its owner alone (mode 0700), and one that others can enter is refused. A bucket has
// to be there, and its server need not answer yet.
func Open(ctx context.Context, a Address) (Store, error) {
	dir, remote, err := a.parse()
	if err != nil {
		return nil, fmt.Errorf("open blob store: %w", err)
	}
	var s Store
	if remote.bucket != "" {
		s, err = openBucket(ctx, remote, a.CredentialsFile)
	} else {
		s, err = openFolder(dir)
	}
	if err != nil {
		return nil, fmt.Errorf("open blob store: %w", err)
	}
	return s, nil
}

// s3Address is where a bucket is.
type s3Address struct {
	bucket, endpoint, region string
	pathStyle                bool
}

// parse gives the folder or the bucket of an address.
func (a Address) parse() (folder string, remote s3Address, err error) {
	u, err := url.Parse(a.URL)
	switch {
	case err != nil:
		return "", remote, errors.New("not a URL")
	case u.User != nil:
		return "", remote, errors.New("leave the credentials out of the URL and give a file that holds them")
	case u.Scheme == s3Scheme:
		remote, err = parseS3(u)
		if err == nil && a.CredentialsFile == "" {
			err = errors.New("a bucket needs a file with credentials")
		}
		return "", remote, err
	case u.Scheme != folderScheme:
		return "", remote, fmt.Errorf("scheme %q is not linked into this binary: use file:///folder or s3://bucket", u.Scheme)
	case u.Host != "" || u.RawQuery != "" || u.Fragment != "" || !filepath.IsAbs(u.Path) || filepath.Clean(u.Path) == "/":
		return "", remote, errors.New("a folder has the form file:///absolute/path, without anything else")
	case a.CredentialsFile != "":
		return "", remote, errors.New("a folder needs no credentials")
	}
	return filepath.Clean(u.Path), remote, nil
}

var (
	bucketName = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$`)
	regionName = regexp.MustCompile(`^[a-z0-9-]{1,64}$`)
)

func parseS3(u *url.URL) (a s3Address, err error) {
	if !bucketName.MatchString(u.Host) || u.Path != "" || u.Fragment != "" {
		return a, errors.New("a bucket has the form s3://BUCKET?endpoint=…&region=…&path_style=…, without anything else")
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return a, errors.New("not a URL")
	}
	a.bucket, a.region = u.Host, defaultRegion
	for name, values := range query {
		switch value := values[0]; {
		case len(values) > 1:
			return a, fmt.Errorf("%s: once", name)
		case name == "endpoint":
			if !safeEndpoint(value) {
				return a, errors.New("endpoint: https://HOST, or http:// on loopback")
			}
			a.endpoint = value
		case name == "region" && regionName.MatchString(value):
			a.region = value
		case name == "path_style" && (value == "true" || value == "false"):
			a.pathStyle = value == "true"
		default:
			return a, errors.New("the parameters of a bucket are endpoint, region and path_style=true or false")
		}
	}
	return a, nil
}

// safeEndpoint reports whether contents may go there: encrypted, or not out of this
// machine.
func safeEndpoint(raw string) bool {
	u, err := url.Parse(raw)
	if err != nil || u.Host == "" || u.User != nil || u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.Fragment != "" {
		return false
	}
	if u.Scheme == "https" {
		return true
	}
	ip, err := netip.ParseAddr(u.Hostname())
	return u.Scheme == "http" && err == nil && ip.IsLoopback()
}
