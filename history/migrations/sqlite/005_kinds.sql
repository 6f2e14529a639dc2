-- The kind of a defined job, empty for a registered one.
ALTER TABLE rota_run ADD COLUMN kind text NOT NULL DEFAULT '';
