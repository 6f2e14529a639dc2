-- The kind of a defined job, empty for a registered one.
SET @rota_alter = IF((SELECT count(*) FROM information_schema.columns WHERE table_schema = DATABASE()
    AND table_name = 'rota_run' AND column_name = 'kind') = 0,
    'ALTER TABLE rota_run ADD COLUMN kind varchar(64) NOT NULL DEFAULT ''''', 'DO 0');

PREPARE rota_alter FROM @rota_alter;

EXECUTE rota_alter;

DEALLOCATE PREPARE rota_alter;
