package memorystore

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"cofferdam.dev/services/statefacade/internal/memory"
	"cofferdam.dev/services/statefacade/internal/memory/lexical"
)

// Find implements [memory.Store], in one statement: it counts and finds in the
// same state of the namespace.
func (s *SQLite) Find(ctx context.Context, namespace string, words []string, kinds []memory.Kind, now time.Time) (c lexical.Corpus, hits []lexical.Hit, err error) {
	const query = `
		WITH standing AS (SELECT key, kind, words FROM memory_records WHERE namespace = ? AND ` + there + `)
		SELECT (SELECT count(*) FROM standing), (SELECT coalesce(sum(words), 0) FROM standing), s.key, s.words, w.word, w.count
		FROM standing s JOIN memory_words w ON w.namespace = ? AND w.key = s.key
		WHERE w.word IN (SELECT value FROM json_each(?)) AND (? = 'null' OR s.kind IN (SELECT value FROM json_each(?)))
		ORDER BY s.key`
	wanted, err := json.Marshal(words)
	if err != nil {
		return c, nil, err
	}
	if len(kinds) == 0 {
		kinds = nil // null: all of them
	}
	of, err := json.Marshal(kinds)
	if err != nil {
		return c, nil, err
	}
	rows, err := s.db.Reader().QueryContext(ctx, query, namespace, now.UnixMicro(), namespace, string(wanted), string(of), string(of))
	if err != nil {
		return c, nil, fmt.Errorf("find memory: %w", err)
	}
	defer func() {
		if err = errors.Join(err, rows.Err(), rows.Close()); err != nil {
			c, hits, err = lexical.Corpus{}, nil, fmt.Errorf("find memory: %w", err)
		}
	}()
	for rows.Next() {
		if hits, err = scanHit(rows, &c, hits); err != nil {
			return c, nil, err
		}
	}
	return c, hits, nil
}

// scanHit adds one word of one record; the words of a record come one after the
// other.
func scanHit(rows *sql.Rows, c *lexical.Corpus, hits []lexical.Hit) ([]lexical.Hit, error) {
	var h lexical.Hit
	var word string
	var count int
	if err := rows.Scan(&c.Texts, &c.Words, &h.ID, &h.Words, &word, &count); err != nil {
		return nil, err
	}
	if n := len(hits); n == 0 || hits[n-1].ID != h.ID {
		h.Counts = make(map[string]int)
		hits = append(hits, h)
	}
	hits[len(hits)-1].Counts[word] = count
	return hits, nil
}
