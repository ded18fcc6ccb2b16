package escape

import (
	"context"
	"io"
)

func impostor(context.Context, io.Reader, io.Writer) error { return nil }
