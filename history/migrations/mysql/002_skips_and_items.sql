-- Why runs were skipped, and the items of data flows.
-- A statement that has been executed before a crash is executed again, so each one looks for the columns first.
SET @rota_alter = IF((SELECT count(*) FROM information_schema.columns WHERE table_schema = DATABASE()
    AND table_name = 'rota_fire_part' AND column_name = 'items_processed') = 0,
    'ALTER TABLE rota_fire_part ADD COLUMN skipped_misfire bigint NOT NULL DEFAULT 0, ADD COLUMN skipped_disabled bigint NOT NULL DEFAULT 0, ADD COLUMN skipped_unoffered bigint NOT NULL DEFAULT 0, ADD COLUMN skipped_expired bigint NOT NULL DEFAULT 0, ADD COLUMN skipped_overlap bigint NOT NULL DEFAULT 0, ADD COLUMN skipped_upstream bigint NOT NULL DEFAULT 0, ADD COLUMN items_fetched bigint NOT NULL DEFAULT 0, ADD COLUMN items_processed bigint NOT NULL DEFAULT 0', 'DO 0');

PREPARE rota_alter FROM @rota_alter;

EXECUTE rota_alter;

DEALLOCATE PREPARE rota_alter;

SET @rota_alter = IF((SELECT count(*) FROM information_schema.columns WHERE table_schema = DATABASE()
    AND table_name = 'rota_run' AND column_name = 'items_processed') = 0,
    'ALTER TABLE rota_run ADD COLUMN items_fetched bigint NOT NULL DEFAULT 0, ADD COLUMN items_processed bigint NOT NULL DEFAULT 0', 'DO 0');

PREPARE rota_alter FROM @rota_alter;

EXECUTE rota_alter;

DEALLOCATE PREPARE rota_alter;

CREATE OR REPLACE VIEW rota_fire AS
SELECT namespace, grp, job, fire, trigger_no, instance, max(shards) AS shards, sum(ok) AS ok, sum(failed) AS failed,
    sum(unfinished) AS unfinished, sum(crashed) AS crashed, sum(skipped) AS skipped,
    min(skipped_from) AS skipped_from, sum(repeated) AS repeated,
    min(first_start) AS first_start, max(last_end) AS last_end, max(max_late_us) AS max_late_us,
    max(max_us) AS max_us, sum(sum_us) AS sum_us,
    max(ended_at) AS ended_at, max(failed_shards) AS failed_shards, max(skipped_shards) AS skipped_shards,
    sum(skipped_misfire) AS skipped_misfire, sum(skipped_disabled) AS skipped_disabled, sum(skipped_unoffered) AS skipped_unoffered,
    sum(skipped_expired) AS skipped_expired, sum(skipped_overlap) AS skipped_overlap, sum(skipped_upstream) AS skipped_upstream,
    sum(items_fetched) AS items_fetched, sum(items_processed) AS items_processed
FROM rota_fire_part
GROUP BY namespace, grp, job, fire, trigger_no, instance;
