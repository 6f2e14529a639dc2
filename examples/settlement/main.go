// Command settlement pays the orders of each day into the accounts of 400 shops, one shard for each region, in an SQLite
// database. Without arguments it runs a fleet of two instances in memory, cuts one of them off in the middle,
// and compares the accounts with the orders. With the file of a database and the address of an etcd it is one process of a fleet
// that settles every night at three, Shanghai time; end it as you like, or kill it.
//
//	go run ./examples/settlement
//	go run ./examples/settlement /var/lib/billing.db 127.0.0.1:2379
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	_ "modernc.org/sqlite"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/etcd"
	"github.com/rota-dev/rota/registry/memory"
	"github.com/rota-dev/rota/schedule"
)

// A document shows from here:

// settle pays the orders of a day to the shops of a region, page by page. Each page is a transaction of the database.
// The checkpoint after it is where the next attempt goes on, on whichever instance.
func (b *bank) settle(ctx context.Context, r *executor.Run) error {
	last, err := lastPaid(ctx, r)
	if err != nil {
		return err
	}
	for {
		shops, err := b.payPage(ctx, r, last)
		if err != nil || len(shops) == 0 {
			return err
		}
		last = shops[len(shops)-1]
		if err := r.Checkpoint(ctx, fmt.Appendf(nil, "%s %d", r.Key, last)); err != nil {
			return err
		}
		select {
		case <-r.Yield(): // the shard is to move, or the process ends
			return executor.ErrYield
		default:
		}
	}
}

// payPage pays the shops after one of them. All attempts at a run have the same Key, the key of its payments: a page that
// is paid again, since the process died before the checkpoint, changes nothing. An attempt that lost its shard is refused by its fence.
func (b *bank) payPage(ctx context.Context, r *executor.Run, after int) (shops []int, err error) {
	tx, err := b.db.BeginTx(ctx, nil)
	if err != nil {
		return nil, err
	}
	defer tx.Rollback() // does nothing after a Commit
	if err := raiseFence(ctx, tx, r); err != nil {
		return nil, err
	}
	sums, err := sumOrders(ctx, tx, r.ShardParam, dayBefore(r.FireTime), after)
	if err != nil {
		return nil, err
	}
	for _, s := range sums {
		first, err := changed(tx.ExecContext(ctx, `INSERT INTO payments (run, shop, amount) VALUES (?, ?, ?) ON CONFLICT DO NOTHING`, r.Key, s.shop, s.amount))
		if err == nil && first {
			_, err = tx.ExecContext(ctx, `INSERT INTO accounts (shop, balance) VALUES (?, ?) ON CONFLICT (shop) DO UPDATE SET balance = balance + excluded.balance`, s.shop, s.amount)
		}
		if err != nil {
			return nil, err
		}
		shops = append(shops, s.shop)
	}
	return shops, tx.Commit()
}

// To here.

// lastPaid returns the shop of the checkpoint, 0 if it is one of another run.
func lastPaid(ctx context.Context, r *executor.Run) (int, error) {
	data, err := r.Resume(ctx)
	if err != nil {
		return 0, err
	}
	shop, ok := strings.CutPrefix(string(data), r.Key+" ")
	if !ok {
		return 0, nil
	}
	return strconv.Atoi(shop)
}

// raiseFence fails if a later run of the shard has written. See examples/guarded.
func raiseFence(ctx context.Context, tx *sql.Tx, r *executor.Run) error {
	newest, err := changed(tx.ExecContext(ctx, `
		INSERT INTO fences (shard, fence) VALUES (?, ?)
		ON CONFLICT (shard) DO UPDATE SET fence = excluded.fence WHERE fences.fence <= excluded.fence`, r.ShardKey(), int64(r.Fence)))
	if err == nil && !newest {
		err = fmt.Errorf("payment of %s: %w", r.ID, executor.ErrRunOver)
	}
	return err
}

// changed reports whether a statement changed a row.
func changed(res sql.Result, err error) (bool, error) {
	if err != nil {
		return false, err
	}
	n, err := res.RowsAffected()
	return n > 0, err
}

// sum is the amount that a shop sold on a day.
type sum struct{ shop, amount int }

const pageSize = 10

// sumOrders returns the next page of the shops of a region that have orders of a day.
func sumOrders(ctx context.Context, tx *sql.Tx, region, day string, after int) (sums []sum, err error) {
	rows, err := tx.QueryContext(ctx, `SELECT shop, sum(amount) FROM orders WHERE region = ? AND day = ? AND shop > ? GROUP BY shop ORDER BY shop LIMIT ?`,
		region, day, after, pageSize)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	time.Sleep(20 * time.Millisecond) // a day of orders takes longer
	for rows.Next() {
		var s sum
		if err := rows.Scan(&s.shop, &s.amount); err != nil {
			return nil, err
		}
		sums = append(sums, s)
	}
	return sums, rows.Err()
}

var shanghai = time.FixedZone("Asia/Shanghai", 8*60*60)

// dayBefore returns the day that a run at fire settles.
func dayBefore(fire time.Time) string {
	return fire.In(shanghai).AddDate(0, 0, -1).Format(time.DateOnly)
}

var regions = []string{"Beijing", "Shanghai", "Guangzhou", "Chengdu"}

func (b *bank) job() executor.Job {
	params := map[int]string{}
	for i, region := range regions {
		params[i] = region
	}
	return executor.Job{
		Name:        "settle",
		Schedule:    schedule.Cron("0 3 * * *").In("Asia/Shanghai"),
		Shards:      len(regions),
		ShardParams: params,
		Handler:     executor.HandlerFunc(b.settle),
		Retry:       executor.Retry{Max: 5, Initial: time.Second},
	}
}

// bank is the database.
type bank struct{ db *sql.DB }

func openBank(ctx context.Context, file string) (*bank, error) {
	// Transactions take the lock of the database at their begin, and wait for it.
	db, err := sql.Open("sqlite", "file:"+file+"?_txlock=immediate&_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)")
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1) // SQLite has one writer, so more connections of a process wait for each other
	_, err = db.ExecContext(ctx, `
		CREATE TABLE IF NOT EXISTS orders (day text, region text, shop integer, amount integer);
		CREATE INDEX IF NOT EXISTS orders_of_day ON orders (region, day, shop);
		CREATE TABLE IF NOT EXISTS payments (run text, shop integer, amount integer, PRIMARY KEY (run, shop));
		CREATE TABLE IF NOT EXISTS accounts (shop integer PRIMARY KEY, balance integer);
		CREATE TABLE IF NOT EXISTS fences (shard text PRIMARY KEY, fence integer);`)
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return &bank{db}, nil
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	var err error
	switch len(os.Args) {
	case 1:
		err = demo(ctx, os.Stdout)
	case 3:
		err = serve(ctx, os.Args[1], os.Args[2])
	default:
		err = errors.New("usage: settlement [database address]")
	}
	if err != nil {
		log.Fatal(err)
	}
}

// serve is a process of a fleet on etcd.
func serve(ctx context.Context, file, address string) error {
	b, err := openBank(ctx, file)
	if err != nil {
		return err
	}
	defer b.db.Close()
	reg, err := etcd.Open(ctx, etcd.Options{Endpoints: []string{address}})
	if err != nil {
		return err
	}
	defer reg.Close(context.Background())
	ex, err := newExecutor(reg, b, executor.Options{})
	if err != nil {
		return err
	}
	return ex.Run(ctx)
}

const namespace = "settlement"

func newExecutor(reg registry.Registry, b *bank, o executor.Options) (*executor.Executor, error) {
	o.SessionTTL = 2 * time.Second // so that other instances continue soon after a crash
	ex, err := executor.New(reg, namespace, o)
	if err != nil {
		return nil, err
	}
	return ex, ex.Register(b.job())
}

// demo runs two instances, of which one is cut off from the registry in the middle of the settlement.
func demo(ctx context.Context, out io.Writer) (err error) {
	dir, err := os.MkdirTemp("", "settlement")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	b, err := openBank(ctx, filepath.Join(dir, "billing.db"))
	if err != nil {
		return err
	}
	defer b.db.Close()
	if err := b.addOrders(ctx, dayBefore(time.Now())); err != nil {
		return err
	}
	server := memory.New()
	var fleet []*executor.Executor
	for _, instance := range []string{"a", "b"} {
		ex, err := newExecutor(server.Client(instance), b, executor.Options{
			Instance: instance,
			Logger:   slog.New(slog.DiscardHandler), // a service logs
		})
		if err != nil {
			return err
		}
		if err := ex.Start(ctx); err != nil {
			return err
		}
		defer ex.Shutdown(context.Background())
		fleet = append(fleet, ex)
	}
	time.Sleep(2 * time.Second) // for b to get shards
	if _, err := fleet[1].Trigger(ctx, "settle", executor.Trigger{}); err != nil {
		return err
	}
	paid, err := b.awaitPayments(ctx, shops/4)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%d of %d shops are paid; instance a crashes\n", paid, shops)
	defer server.Partition("a")()
	if _, err := b.awaitPayments(ctx, shops); err != nil {
		return err
	}
	wrong, err := b.countWrong(ctx)
	fmt.Fprintf(out, "%d of %d shops are paid, %d of them not what they sold\n", shops, shops, wrong)
	return err
}

const shops = 400

// addOrders adds three orders of a day for each shop.
func (b *bank) addOrders(ctx context.Context, day string) error {
	tx, err := b.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	for shop := range shops {
		for order := range 3 {
			if _, err := tx.ExecContext(ctx, `INSERT INTO orders VALUES (?, ?, ?, ?)`, day, regions[shop%len(regions)], 1+shop, 100*order+shop); err != nil {
				return err
			}
		}
	}
	return tx.Commit()
}

// awaitPayments waits until a number of shops are paid, and returns their number.
func (b *bank) awaitPayments(ctx context.Context, want int) (paid int, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		err := b.db.QueryRowContext(ctx, `SELECT count(*) FROM payments`).Scan(&paid)
		if err != nil || paid >= want {
			return paid, err
		}
		select {
		case <-ctx.Done():
			return paid, fmt.Errorf("%d of %d shops are paid: %w", paid, want, ctx.Err())
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// countWrong returns the number of shops whose account differs from their orders of the day that was settled.
func (b *bank) countWrong(ctx context.Context) (n int, err error) {
	err = b.db.QueryRowContext(ctx, `
		SELECT count(*) FROM (SELECT shop, sum(amount) AS sold FROM orders GROUP BY day, shop) LEFT JOIN accounts USING (shop)
		WHERE balance IS NOT sold`).Scan(&n)
	return n, err
}
