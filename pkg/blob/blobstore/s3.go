package blobstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	gcblob "gocloud.dev/blob"
	"gocloud.dev/blob/s3blob"
	"gocloud.dev/gcerrors"

	"cofferdam.dev/pkg/blob"
	"cofferdam.dev/pkg/secretfile"
)

const (
	// credentialsLife is how long a credentials file is believed before it is read
	// again.
	credentialsLife = time.Minute
	maxAttempts     = 3
	dialTimeout     = 10 * time.Second
	// answerTimeout is how long a server may take to begin its answer.
	answerTimeout = time.Minute
)

// bucket keeps blobs as objects of one bucket of an S3 server. An object is there as
// a whole or not at all; of an upload that a process did not come to the end of, the
// server may keep parts that nobody sees, which a lifecycle rule removes.
type bucket struct {
	*gcblob.Bucket

	transport *http.Transport
}

// openBucket reads the credentials first: a file that is not right is found at the
// start. Nothing is taken from the environment.
func openBucket(ctx context.Context, a s3Address, credentialsFile string) (Store, error) {
	provider := credentials{credentialsFile}
	if _, err := provider.Retrieve(ctx); err != nil {
		return nil, err
	}
	transport := &http.Transport{ // no proxy from the environment
		TLSHandshakeTimeout: dialTimeout, ResponseHeaderTimeout: answerTimeout, MaxIdleConnsPerHost: 16, IdleConnTimeout: time.Minute,
	}
	client := s3.NewFromConfig(aws.Config{
		Region: a.region, Credentials: aws.NewCredentialsCache(provider), RetryMaxAttempts: maxAttempts, HTTPClient: &http.Client{Transport: transport},
	}, func(o *s3.Options) {
		o.UsePathStyle = a.pathStyle
		if a.endpoint != "" {
			o.BaseEndpoint = aws.String(a.endpoint)
		}
	})
	b, err := s3blob.OpenBucket(ctx, client, a.bucket, nil)
	if err != nil {
		return nil, err
	}
	return &bucket{b, transport}, nil
}

// credentials are those of the profile default in a file of AWS's form, which is read
// again when it is time to: it can be rotated.
type credentials struct{ path string }

// Retrieve implements aws.CredentialsProvider.
func (c credentials) Retrieve(ctx context.Context) (aws.Credentials, error) {
	info, err := os.Stat(c.path)
	if err == nil {
		err = secretfile.Private(info)
	}
	if err != nil {
		return aws.Credentials{}, fmt.Errorf("credentials file: %s: %w", c.path, err)
	}
	profile, err := config.LoadSharedConfigProfile(ctx, "default", func(o *config.LoadSharedConfigOptions) {
		o.CredentialsFiles, o.ConfigFiles = []string{c.path}, []string{}
	})
	if err != nil || !profile.Credentials.HasKeys() { // the error may repeat a line
		return aws.Credentials{}, fmt.Errorf("credentials file: %s has no profile default with aws_access_key_id and aws_secret_access_key", c.path)
	}
	out := profile.Credentials
	out.CanExpire, out.Expires = true, time.Now().Add(credentialsLife)
	return out, nil
}

// Close implements [Store].
func (b *bucket) Close() error {
	err := b.Bucket.Close()
	b.transport.CloseIdleConnections()
	return err
}

// Check implements [Store].
func (b *bucket) Check(ctx context.Context) error {
	ok, err := b.IsAccessible(ctx)
	if err == nil && !ok {
		err = errors.New("no such bucket, or it may not be used")
	}
	return err
}

// Create implements [blob.Store].
func (b *bucket) Create(ctx context.Context, key string) (blob.Writer, error) {
	if err := usable(ctx, key); err != nil {
		return nil, fmt.Errorf("create blob: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	w, err := b.NewWriter(ctx, key, &gcblob.WriterOptions{ContentType: "application/octet-stream", DisableContentTypeDetection: true})
	if err != nil {
		cancel()
		return nil, fmt.Errorf("create blob: %w", err)
	}
	return &bucketWriter{Writer: w, ctx: ctx, cancel: cancel}, nil
}

// Open implements [blob.Store].
func (b *bucket) Open(ctx context.Context, key string, offset int64) (io.ReadCloser, error) {
	if err := usable(ctx, key); err != nil {
		return nil, fmt.Errorf("open blob: %w", err)
	}
	if offset > 0 { // a server refuses a range of which it has nothing
		a, err := b.Attributes(ctx, key)
		if err != nil {
			return nil, opened(err)
		}
		if offset >= a.Size {
			return io.NopCloser(bytes.NewReader(nil)), nil
		}
	}
	r, err := b.NewRangeReader(ctx, key, offset, -1, nil)
	if err != nil {
		return nil, opened(err)
	}
	return r, nil
}

func opened(err error) error {
	if gcerrors.Code(err) == gcerrors.NotFound {
		return errors.Join(blob.ErrNotFound, err)
	}
	return fmt.Errorf("open blob: %w", err)
}

// Delete implements [blob.Store].
func (b *bucket) Delete(ctx context.Context, key string) error {
	if err := usable(ctx, key); err != nil {
		return fmt.Errorf("delete blob: %w", err)
	}
	if err := b.Bucket.Delete(ctx, key); err != nil && gcerrors.Code(err) != gcerrors.NotFound {
		return fmt.Errorf("delete blob: %w", err)
	}
	return nil
}

// Each implements [blob.Store].
func (b *bucket) Each(ctx context.Context, folder string, tell func(blob.Entry) error) error {
	if err := usable(ctx, folder); err != nil {
		return fmt.Errorf("list blobs: %w", err)
	}
	all := b.List(&gcblob.ListOptions{Prefix: folder + "/"})
	for {
		o, err := all.Next(ctx)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("list blobs: %w", err)
		}
		if !blob.ValidKey(o.Key) { // nobody here wrote it
			continue
		}
		if err := tell(blob.Entry{Key: o.Key, Written: o.ModTime}); err != nil {
			return err
		}
	}
}

// bucketWriter writes an object that is there once the server has all of it.
type bucketWriter struct {
	*gcblob.Writer

	ctx    context.Context //nolint:containedctx // what ends the writer, as Create says
	cancel context.CancelFunc
}

// Commit implements [blob.Writer].
func (w *bucketWriter) Commit() error {
	defer w.cancel()
	if err := w.ctx.Err(); err != nil {
		return errors.Join(fmt.Errorf("commit blob: %w", err), w.Abort())
	}
	if err := w.Close(); err != nil {
		return fmt.Errorf("commit blob: %w", err)
	}
	return nil
}

// Abort implements [blob.Writer]. To close a writer whose context has ended is how
// it is given up.
func (w *bucketWriter) Abort() error {
	w.cancel()
	if err := w.Close(); err != nil && !errors.Is(err, context.Canceled) && gcerrors.Code(err) != gcerrors.Canceled {
		return fmt.Errorf("abort blob: %w", err)
	}
	return nil
}
