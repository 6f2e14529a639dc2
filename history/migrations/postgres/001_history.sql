-- A row for the runs of a fire on an instance that had ended at some time. Further runs have a row with another part.
CREATE TABLE rota_fire_part (
    namespace text NOT NULL,
    grp text NOT NULL,
    job text NOT NULL,
    fire timestamptz NOT NULL,
    trigger_no bigint NOT NULL,
    instance text NOT NULL,
    part bigint NOT NULL,
    shards integer NOT NULL,
    ok bigint NOT NULL,
    failed bigint NOT NULL,
    unfinished bigint NOT NULL,
    crashed bigint NOT NULL,
    skipped bigint NOT NULL,
    skipped_from timestamptz,
    repeated bigint NOT NULL,
    first_start timestamptz,
    last_end timestamptz,
    max_late_us bigint NOT NULL,
    max_us bigint NOT NULL,
    sum_us bigint NOT NULL,
    ended_at timestamptz,
    failed_shards integer NOT NULL,
    skipped_shards integer NOT NULL,
    PRIMARY KEY (namespace, grp, job, fire, trigger_no, instance, part)
);

CREATE INDEX rota_fire_part_age ON rota_fire_part (namespace, grp, fire);

CREATE TABLE rota_run (
    namespace text NOT NULL,
    grp text NOT NULL,
    job text NOT NULL,
    fire timestamptz NOT NULL,
    run_id text NOT NULL,
    instance text NOT NULL,
    trigger_no bigint NOT NULL,
    shard integer NOT NULL,
    shards integer NOT NULL,
    attempt integer NOT NULL,
    reason text NOT NULL,
    fence bigint NOT NULL,
    started_at timestamptz,
    ended_at timestamptz NOT NULL,
    took_us bigint NOT NULL,
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
