package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/conformance/child"
	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/internal/test/testserver/servertest"
	"github.com/rota-dev/rota/operator"
	"github.com/rota-dev/rota/registry/etcd"
	"github.com/rota-dev/rota/rotatest"
)

// processVar makes the binary of the tests a process of the fleet. Its value is the database and the address.
const processVar = "SETTLEMENT_TEST_PROCESS"

func TestMain(m *testing.M) {
	if file, address, ok := strings.Cut(os.Getenv(processVar), " "); ok {
		if err := serve(context.Background(), file, address); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	servertest.Main(m)
}

func TestDemo_PaysEachShopOnce(t *testing.T) {
	rotatest.Run(t, func(f *rotatest.Fleet) {
		var out bytes.Buffer
		require.NoError(t, demo(f.T().Context(), &out))
		counts := regexp.MustCompile(`^(\d+) of 400 shops are paid; instance a crashes
400 of 400 shops are paid, 0 of them not what they sold
$`).FindStringSubmatch(out.String())
		require.NotNil(t, counts, out.String())
		before, _ := strconv.Atoi(counts[1])
		assert.Less(t, before, shops)
	})
}

// Two nights: in the first one an instance crashes, in the second one it drains.
func TestSettle_GoesOnAtTheCheckpoint(t *testing.T) {
	rotatest.Run(t, func(f *rotatest.Fleet) {
		b, err := openBank(f.T().Context(), filepath.Join(f.T().TempDir(), "billing.db"))
		require.NoError(t, err)
		defer b.db.Close()
		f.Start("a", b.job())
		f.Start("b", b.job())
		f.Settle()
		for night, end := range []func(instance string){f.Crash, f.Stop} {
			before := night * shops
			fires, err := b.job().Schedule.Next(time.Now(), 1)
			require.NoError(t, err)
			require.NoError(t, b.addOrders(f.T().Context(), dayBefore(fires[0])))
			require.Equal(t, fires[0].UTC(), f.NextFire("settle")) // waits for it
			_, err = b.awaitPayments(f.T().Context(), before+shops/4)
			require.NoError(t, err)
			end("a")
			paid, err := b.awaitPayments(f.T().Context(), 0)
			require.NoError(t, err)
			require.Less(t, paid, before+shops, "night %d ends in the middle", night)
			f.Settle()
			requirePaid(t, b, night+1)
			f.Start("a", b.job())
			f.Settle()
		}
		resumed := 0
		for _, r := range f.Runs("settle") {
			if r.Attempt > 1 {
				resumed++
			}
		}
		assert.GreaterOrEqual(t, resumed, 2, "runs of a were made again on b")
	})
}

// requirePaid fails unless each shop has one payment for each of so many nights, and their sum in its account.
func requirePaid(t *testing.T, b *bank, nights int) {
	t.Helper()
	query := func(text string) (n int) {
		require.NoError(t, b.db.QueryRow(text).Scan(&n))
		return n
	}
	require.Equal(t, nights*shops, query(`SELECT count(*) FROM payments`))
	require.Equal(t, nights*len(regions), query(`SELECT count(DISTINCT run) FROM payments`), "attempts have the key of the run")
	require.Equal(t, query(`SELECT sum(amount) FROM orders`), query(`SELECT sum(balance) FROM accounts`))
	require.Zero(t, query(`SELECT count(*) FROM (SELECT shop, sum(amount) AS sold FROM orders GROUP BY shop) LEFT JOIN accounts USING (shop) WHERE balance IS NOT sold`))
}

func TestPayPage(t *testing.T) {
	ctx := t.Context()
	b, err := openBank(ctx, filepath.Join(t.TempDir(), "billing.db"))
	require.NoError(t, err)
	defer b.db.Close()
	fire := time.Date(2026, 3, 1, 19, 0, 0, 0, time.UTC) // 3:00 of March 2 in Shanghai
	require.NoError(t, b.addOrders(ctx, "2026-03-01"))
	run := &executor.Run{RunInfo: executor.RunInfo{ID: "settle/1/x/1", Key: "settle/1/x", Job: "settle", Shard: 1, ShardParam: "Shanghai", FireTime: fire, Fence: 7}}
	balance := func() (n int) {
		require.NoError(t, b.db.QueryRow(`SELECT sum(balance) FROM accounts`).Scan(&n))
		return n
	}
	paid, err := b.payPage(ctx, run, 0)
	require.NoError(t, err)
	require.Equal(t, []int{2, 6, 10, 14, 18, 22, 26, 30, 34, 38}, paid)
	before := balance()
	again := *run
	again.ID, again.Fence = "settle/1/x/2", 8
	paid, err = b.payPage(ctx, &again, 0)
	require.NoError(t, err)
	require.Len(t, paid, pageSize)
	require.Equal(t, before, balance(), "a page that is repeated pays nothing")
	_, err = b.payPage(ctx, run, 38)
	require.ErrorIs(t, err, executor.ErrRunOver, "the first attempt writes late")
	require.Equal(t, before, balance())
	paid, err = b.payPage(ctx, &again, shops)
	require.NoError(t, err)
	require.Empty(t, paid)
}

func TestProcesses_OnAServer_PayEachShopOnceWhenOneIsKilled(t *testing.T) {
	file, address := filepath.Join(t.TempDir(), "billing.db"), servertest.Etcd(t).Addrs()[0]
	b, err := openBank(t.Context(), file)
	require.NoError(t, err)
	defer b.db.Close()
	for _, fire := range []time.Time{time.Now(), time.Now().Add(time.Hour)} { // the trigger may be after midnight
		if day := dayBefore(fire); !hasOrders(t, b, day) {
			require.NoError(t, b.addOrders(t.Context(), day))
		}
	}
	start := func() *child.Process {
		path, err := os.Executable()
		require.NoError(t, err)
		cmd := exec.Command(path)
		cmd.Env = append(os.Environ(), processVar+"="+file+" "+address)
		cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
		p, err := child.Start(cmd)
		require.NoError(t, err)
		t.Cleanup(p.Kill)
		return p
	}
	first := start()
	reg, err := etcd.Open(t.Context(), etcd.Options{Endpoints: []string{address}})
	require.NoError(t, err)
	defer reg.Close(context.Background())
	op, err := operator.New(reg, namespace, "")
	require.NoError(t, err)
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		_, err := op.Trigger(t.Context(), "settle", "", nil)
		assert.NoError(c, err)
	}, time.Minute, 50*time.Millisecond, "once the first process has stored the job")
	before, err := b.awaitPayments(t.Context(), shops/4)
	require.NoError(t, err)
	first.Kill()
	require.Less(t, before, shops)
	start()
	_, err = b.awaitPayments(t.Context(), shops)
	require.NoError(t, err)
	wrong, err := b.countWrong(t.Context())
	require.NoError(t, err)
	assert.Zero(t, wrong)
}

func hasOrders(t *testing.T, b *bank, day string) bool {
	var n int
	require.NoError(t, b.db.QueryRow(`SELECT count(*) FROM orders WHERE day = ?`, day).Scan(&n))
	return n > 0
}
