package history

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var dialects = []Dialect{Postgres, MySQL, SQLite}

func TestMigrations_HaveTheColumnsOfTheStatements(t *testing.T) {
	column := regexp.MustCompile(`(?m)^    ([a-z_]+) [a-z]`)
	added := regexp.MustCompile(`ADD COLUMN ([a-z_]+)`)
	for _, d := range dialects {
		text, err := MigrationSQL(d)
		require.NoError(t, err)
		for table, want := range map[string][]string{"rota_fire_part": fireColumns, "rota_run": runColumns, "rota_log": logColumns} {
			var got []string
			for s := range strings.SplitSeq(text, ";\n") {
				if strings.Contains(s, "ALTER TABLE "+table) {
					for _, m := range added.FindAllStringSubmatch(s, -1) {
						got = append(got, m[1])
					}
				}
			}
			_, text, ok := strings.Cut(text, table+" (\n")
			require.True(t, ok)
			text, _, _ = strings.Cut(text, "\n)")
			for _, m := range column.FindAllStringSubmatch(text, -1) {
				got = append(got, m[1])
			}
			require.ElementsMatch(t, want, got, "%v %s", d, table)
			require.Contains(t, text, "PRIMARY KEY ("+strings.Join(primaryKeys[table], ", ")+")")
		}
	}
}

func TestMigrationSQL_IsWhatMigrateExecutes(t *testing.T) {
	for _, d := range dialects {
		text, err := MigrationSQL(d)
		require.NoError(t, err)
		all, err := readMigrations(d)
		require.NoError(t, err)
		want := []string{createVersions}
		for _, m := range all {
			want = append(append(want, splitStatements(m.text)...), insertVersion(m))
		}
		require.Equal(t, want, splitStatements(text))
	}
	_, err := MigrationSQL(0)
	require.EqualError(t, err, "history: Dialect(0) is no dialect")
	_, err = SQL(nil, 9, SQLOptions{})
	require.Error(t, err)
}

func TestStatement_NumbersPlaceholders(t *testing.T) {
	require.Equal(t, "a = $1 AND b = $2", Postgres.statement("a = ? AND b = ?"))
	require.Equal(t, "a = ? AND b = ?", SQLite.statement("a = ? AND b = ?"))
}
