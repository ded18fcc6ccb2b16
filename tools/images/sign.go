package main

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/secure-systems-lab/go-securesystemslib/dsse"
)

const (
	bundleType    = types.MediaType("application/vnd.dev.sigstore.bundle.v0.3+json")
	statementType = "https://in-toto.io/Statement/v1"
	signatureType = "https://sigstore.dev/cosign/sign/v1"
	payloadType   = "application/vnd.in-toto+json"
)

// keygen makes a key pair for development; a production key belongs in a KMS, whose
// cosign writes the same bundle.
func keygen(private, public string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	open, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return err
	}
	// A key that is there stays: images that it signed would be refused.
	f, err := os.OpenFile(private, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s is there already; remove it if nothing that it signed is in use", private)
	}
	if err != nil {
		return err
	}
	if err := pem.Encode(f, &pem.Block{Type: "PRIVATE KEY", Bytes: secret}); err != nil {
		return errors.Join(err, f.Close())
	}
	if err := f.Close(); err != nil {
		return err
	}
	return writeFile(public, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: open}))
}

// readKey reads a private key that nobody else may read.
func readKey(path string) (*ecdsa.PrivateKey, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("%s may be read by others (mode %04o): chmod 600 it", path, info.Mode().Perm())
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(content)
	if block == nil || block.Type != "PRIVATE KEY" {
		return nil, fmt.Errorf("%s is no PEM file with a PRIVATE KEY (PKCS #8)", path)
	}
	// The error of the parser is left out: it may quote the key.
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("%s holds no PKCS #8 key", path)
	}
	ec, ok := key.(*ecdsa.PrivateKey)
	if !ok || ec.Curve != elliptic.P256() {
		return nil, fmt.Errorf("%s holds another kind of key than ECDSA P-256", path)
	}
	return ec, nil
}

func signFile(keyFile, image, bundleFile string) error {
	_, digest, found := strings.Cut(image, "@")
	if !found {
		return fmt.Errorf("%s has no digest; what is signed is NAME@sha256:HEX", image)
	}
	hash, err := v1.NewHash(digest)
	if err != nil {
		return err
	}
	bundle, err := sign(keyFile, hash)
	if err != nil {
		return err
	}
	return writeFile(bundleFile, bundle)
}

// sign makes a Sigstore bundle v0.3 as cosign 3 writes it for a key: a DSSE envelope
// around an in-toto statement whose subject is the image's digest. There is no
// transparency log and no time stamp in it. The signature is that of RFC 6979: the
// same digest and key give the same bundle.
func sign(keyFile string, digest v1.Hash) ([]byte, error) {
	key, err := readKey(keyFile)
	if err != nil {
		return nil, err
	}
	type subject struct {
		Digest map[string]string `json:"digest"`
	}
	statement, err := json.Marshal(struct {
		Type          string    `json:"_type"`
		Subject       []subject `json:"subject"`
		PredicateType string    `json:"predicateType"`
		Predicate     struct{}  `json:"predicate"`
	}{Type: statementType, Subject: []subject{{map[string]string{digest.Algorithm: digest.Hex}}}, PredicateType: signatureType})
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(dsse.PAE(payloadType, statement))
	signature, err := key.Sign(nil, sum[:], crypto.SHA256)
	if err != nil {
		return nil, err
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return nil, err
	}
	hint := sha256.Sum256(public)
	type publicKey struct {
		Hint string `json:"hint"`
	}
	type material struct {
		PublicKey publicKey `json:"publicKey"`
	}
	return json.Marshal(struct {
		MediaType            types.MediaType `json:"mediaType"`
		VerificationMaterial material        `json:"verificationMaterial"`
		Envelope             dsse.Envelope   `json:"dsseEnvelope"`
	}{
		bundleType,
		material{publicKey{base64.StdEncoding.EncodeToString(hint[:])}},
		dsse.Envelope{
			PayloadType: payloadType, Payload: base64.StdEncoding.EncodeToString(statement),
			Signatures: []dsse.Signature{{Sig: base64.StdEncoding.EncodeToString(signature)}},
		},
	})
}
