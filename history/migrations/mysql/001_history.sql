-- Times are in UTC. MySQL commits after each statement, so each can be executed again.
-- A row for the runs of a fire on an instance that had ended at some time. Further runs have a row with another part.
CREATE TABLE IF NOT EXISTS rota_fire_part (
    namespace varchar(190) NOT NULL,
    grp varchar(64) NOT NULL,
    job varchar(128) NOT NULL,
    fire datetime(6) NOT NULL,
    trigger_no bigint NOT NULL,
    instance varchar(128) NOT NULL,
    part bigint NOT NULL,
    shards integer NOT NULL,
    ok bigint NOT NULL,
    failed bigint NOT NULL,
    unfinished bigint NOT NULL,
    crashed bigint NOT NULL,
    skipped bigint NOT NULL,
    skipped_from datetime(6),
    repeated bigint NOT NULL,
    first_start datetime(6),
    last_end datetime(6),
    max_late_us bigint NOT NULL,
    max_us bigint NOT NULL,
    sum_us bigint NOT NULL,
    ended_at datetime(6),
    failed_shards integer NOT NULL,
    skipped_shards integer NOT NULL,
    PRIMARY KEY (namespace, grp, job, fire, trigger_no, instance, part),
    KEY rota_fire_part_age (namespace, grp, fire)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE IF NOT EXISTS rota_run (
    namespace varchar(190) NOT NULL,
    grp varchar(64) NOT NULL,
    job varchar(128) NOT NULL,
    fire datetime(6) NOT NULL,
    run_id varchar(190) NOT NULL,
    instance varchar(128) NOT NULL,
    trigger_no bigint NOT NULL,
    shard integer NOT NULL,
    shards integer NOT NULL,
    attempt integer NOT NULL,
    reason varchar(32) NOT NULL,
    fence bigint NOT NULL,
    started_at datetime(6),
    ended_at datetime(6) NOT NULL,
    took_us bigint NOT NULL,
    outcome varchar(32) NOT NULL,
    failure boolean NOT NULL,
    error varchar(1024) NOT NULL,
    exit_code integer,
    output_tail text NOT NULL,
    trace_id varchar(64) NOT NULL,
    PRIMARY KEY (namespace, grp, job, fire, run_id, instance),
    KEY rota_run_shard (namespace, grp, job, shard, ended_at),
    KEY rota_run_failure (namespace, grp, failure, ended_at)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- A row for each fire and instance.
CREATE OR REPLACE VIEW rota_fire AS
SELECT namespace, grp, job, fire, trigger_no, instance, max(shards) AS shards, sum(ok) AS ok, sum(failed) AS failed,
    sum(unfinished) AS unfinished, sum(crashed) AS crashed, sum(skipped) AS skipped,
    min(skipped_from) AS skipped_from, sum(repeated) AS repeated,
    min(first_start) AS first_start, max(last_end) AS last_end, max(max_late_us) AS max_late_us,
    max(max_us) AS max_us, sum(sum_us) AS sum_us,
    max(ended_at) AS ended_at, max(failed_shards) AS failed_shards, max(skipped_shards) AS skipped_shards
FROM rota_fire_part
GROUP BY namespace, grp, job, fire, trigger_no, instance;
