-- Counts of a job's runs by fire and shard, without reading errors and outputs.
SET @rota_alter = IF((SELECT count(*) FROM information_schema.statistics WHERE table_schema = DATABASE()
    AND table_name = 'rota_run' AND index_name = 'rota_run_cell') = 0,
    'CREATE INDEX rota_run_cell ON rota_run (namespace, grp, job, fire, trigger_no, shard, attempt, outcome)', 'DO 0');

PREPARE rota_alter FROM @rota_alter;

EXECUTE rota_alter;

DEALLOCATE PREPARE rota_alter;
