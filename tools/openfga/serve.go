package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/openfga/openfga/pkg/gateway"
	"github.com/openfga/openfga/pkg/logger"
	"github.com/openfga/openfga/pkg/server"
	"github.com/openfga/openfga/pkg/storage/sqlcommon"
	"github.com/openfga/openfga/pkg/storage/sqlite"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

const (
	requestTimeout  = 10 * time.Second
	headerTimeout   = 5 * time.Second
	idleTimeout     = 2 * time.Minute
	shutdownTimeout = 2 * time.Second
)

// ready is the line on stdout that tells the supervisor where the API is.
type ready struct {
	Ready bool   `json:"ready"`
	HTTP  string `json:"http"`
}

// run serves until ctx ends or, with --exit-with-stdin, until stdin does.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) (err error) {
	cfg, err := parseFlags(args, stderr)
	if err != nil {
		return err
	}
	key, err := readKey(cfg.PresharedKeyFile)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if cfg.ExitWithStdin {
		// The read cannot be interrupted: this goroutine ends with stdin, or
		// with the process.
		go func() {
			_, _ = io.Copy(io.Discard, stdin)
			cancel()
		}()
	}

	log := newLogger(stderr)
	srv, err := openServer(ctx, cfg.Datastore, log)
	if err != nil {
		return err
	}
	defer srv.Close()

	handler, err := newHandler(ctx, srv, key, log)
	if err != nil {
		return fmt.Errorf("set up the HTTP API: %w", err)
	}
	listener, err := cfg.listen(ctx)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	return serve(ctx, listener, handler, stdout)
}

// newLogger writes warnings and worse as JSON lines.
func newLogger(w io.Writer) logger.Logger {
	encoder := zap.NewProductionEncoderConfig()
	encoder.EncodeTime = zapcore.RFC3339NanoTimeEncoder
	core := zapcore.NewCore(zapcore.NewJSONEncoder(encoder), zapcore.Lock(zapcore.AddSync(w)), zapcore.WarnLevel)
	return &logger.ZapLogger{Logger: zap.New(core)}
}

// openServer brings the schema of the file up to date and opens it. Caches
// stay off: a decision is never older than the request.
func openServer(ctx context.Context, path string, log logger.Logger) (*server.Server, error) {
	db, err := openDatabase(ctx, path)
	if err != nil {
		return nil, fmt.Errorf("datastore %s: %w", path, err)
	}
	store, err := sqlite.NewWithDB(db, sqlcommon.NewConfig(sqlcommon.WithLogger(log)))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("datastore %s: %w", path, err), db.Close())
	}
	srv, err := server.NewServerWithOpts(
		server.WithDatastore(store),
		server.WithContinuationTokenSerializer(sqlcommon.NewSQLContinuationTokenSerializer()),
		server.WithTransport(gateway.NewRPCTransport(log)),
		server.WithLogger(log),
	)
	if err != nil {
		store.Close()
		return nil, fmt.Errorf("set up OpenFGA: %w", err)
	}
	return srv, nil
}

// serve owns listener; it returns when ctx has ended and requests under way
// are answered or shutdownTimeout has passed.
func serve(ctx context.Context, listener net.Listener, handler http.Handler, stdout io.Writer) error {
	httpServer := &http.Server{
		Handler:           http.TimeoutHandler(handler, requestTimeout, "request timed out"),
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       requestTimeout,
		WriteTimeout:      requestTimeout + time.Second,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    16 << 10,
	}
	served := make(chan error, 1)
	go func() { served <- httpServer.Serve(listener) }()

	line := ready{Ready: true, HTTP: "http://" + listener.Addr().String()}
	if err := json.NewEncoder(stdout).Encode(line); err != nil {
		err = fmt.Errorf("announce: %w", err)
		return errors.Join(err, httpServer.Close(), ignoreClosed(<-served))
	}

	select {
	case err := <-served:
		return fmt.Errorf("serve: %w", err)
	case <-ctx.Done():
	}
	// Not derived from ctx, which has ended already.
	bound, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer cancel()
	if err := httpServer.Shutdown(bound); err != nil {
		// Past the bound requests are cut off: that is the promise, no failure.
		_ = httpServer.Close()
	}
	return ignoreClosed(<-served)
}

func ignoreClosed(err error) error {
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}
