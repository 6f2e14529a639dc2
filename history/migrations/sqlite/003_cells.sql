-- Counts of a job's runs by fire and shard, without reading errors and outputs.
CREATE INDEX rota_run_cell ON rota_run (namespace, grp, job, fire, trigger_no, shard, attempt, outcome);
