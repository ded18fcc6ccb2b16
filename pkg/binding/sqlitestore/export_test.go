package sqlitestore

import "database/sql"

// Pools are the writer and the readers of a store.
func Pools(s *Store) [2]*sql.DB { return [2]*sql.DB{s.db.Writer(), s.db.Reader()} }

// Versions are the migrations.
func Versions() []string { return migrations() }
