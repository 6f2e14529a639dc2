-- Times are text: 2026-01-31 03:00:00.000000 in UTC.
-- A row for the runs of a fire on an instance that had ended at some time. Further runs have a row with another part.
CREATE TABLE rota_fire_part (
    namespace text NOT NULL,
    grp text NOT NULL,
    job text NOT NULL,
    fire text NOT NULL,
    trigger_no integer NOT NULL,
    instance text NOT NULL,
    part integer NOT NULL,
    shards integer NOT NULL,
    ok integer NOT NULL,
    failed integer NOT NULL,
    unfinished integer NOT NULL,
    crashed integer NOT NULL,
    skipped integer NOT NULL,
    skipped_from text,
    repeated integer NOT NULL,
    first_start text,
    last_end text,
    max_late_us integer NOT NULL,
    max_us integer NOT NULL,
    sum_us integer NOT NULL,
    ended_at text,
    failed_shards integer NOT NULL,
    skipped_shards integer NOT NULL,
    PRIMARY KEY (namespace, grp, job, fire, trigger_no, instance, part)
);

CREATE INDEX rota_fire_part_age ON rota_fire_part (namespace, grp, fire);

CREATE TABLE rota_run (
    namespace text NOT NULL,
    grp text NOT NULL,
    job text NOT NULL,
    fire text NOT NULL,
    run_id text NOT NULL,
    instance text NOT NULL,
    trigger_no integer NOT NULL,
    shard integer NOT NULL,
    shards integer NOT NULL,
    attempt integer NOT NULL,
    reason text NOT NULL,
    fence integer NOT NULL,
    started_at text,
    ended_at text NOT NULL,
    took_us integer NOT NULL,
    outcome text NOT NULL,
    failure boolean NOT NULL,
    error text NOT NULL,
    exit_code integer,
    output_tail text NOT NULL,
    trace_id text NOT NULL,
    PRIMARY KEY (namespace, grp, job, fire, run_id, instance)
);

CREATE INDEX rota_run_shard ON rota_run (namespace, grp, job, shard, ended_at);

CREATE INDEX rota_run_failure ON rota_run (namespace, grp, failure, ended_at);

-- A row for each fire and instance.
CREATE VIEW rota_fire AS
SELECT namespace, grp, job, fire, trigger_no, instance, max(shards) AS shards, sum(ok) AS ok, sum(failed) AS failed,
    sum(unfinished) AS unfinished, sum(crashed) AS crashed, sum(skipped) AS skipped,
    min(skipped_from) AS skipped_from, sum(repeated) AS repeated,
    min(first_start) AS first_start, max(last_end) AS last_end, max(max_late_us) AS max_late_us,
    max(max_us) AS max_us, sum(sum_us) AS sum_us,
    max(ended_at) AS ended_at, max(failed_shards) AS failed_shards, max(skipped_shards) AS skipped_shards
FROM rota_fire_part
GROUP BY namespace, grp, job, fire, trigger_no, instance;
