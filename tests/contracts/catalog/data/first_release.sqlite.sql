-- A catalog as the first release wrote it (commit 31467ce), before its tables had revisions.
BEGIN TRANSACTION;
CREATE TABLE clusters (
	name VARCHAR(200) NOT NULL,
	kind VARCHAR(50) NOT NULL,
	settings JSON NOT NULL,
	desired_workers INTEGER NOT NULL,
	ready_workers INTEGER NOT NULL,
	message TEXT,
	updated_ms BIGINT NOT NULL,
	CONSTRAINT pk_clusters PRIMARY KEY (name)
);
INSERT INTO "clusters" VALUES('local','standalone','{"master_url": "spark://h:7077"}',2,2,NULL,10);
CREATE TABLE epochs (
	job VARCHAR(200) NOT NULL,
	lineage BIGINT NOT NULL,
	epoch BIGINT NOT NULL,
	generation INTEGER NOT NULL,
	parallelism INTEGER NOT NULL,
	rows BIGINT NOT NULL,
	rows_total BIGINT NOT NULL,
	started_ms BIGINT NOT NULL,
	committed_ms BIGINT NOT NULL,
	duration_ms BIGINT NOT NULL,
	phases JSON NOT NULL,
	cache_hits INTEGER NOT NULL,
	subtasks INTEGER NOT NULL,
	backlog_rows BIGINT,
	CONSTRAINT pk_epochs PRIMARY KEY (job, lineage, epoch),
	CONSTRAINT fk_epochs_job FOREIGN KEY(job) REFERENCES jobs (name)
);
INSERT INTO "epochs" VALUES('flights',1,8,2,4,100,800,100,200,100,'{"run": 90.5}',3,4,5000);
INSERT INTO "epochs" VALUES('flights',1,9,2,4,100,900,200,300,100,'{}',4,4,NULL);
CREATE TABLE generations (
	job VARCHAR(200) NOT NULL,
	generation INTEGER NOT NULL,
	state VARCHAR(20) NOT NULL,
	parallelism INTEGER NOT NULL,
	started_ms BIGINT NOT NULL,
	heartbeat_ms BIGINT NOT NULL,
	ended_ms BIGINT,
	error TEXT,
	log_path TEXT NOT NULL,
	lineage BIGINT,
	epoch BIGINT,
	CONSTRAINT pk_generations PRIMARY KEY (job, generation),
	CONSTRAINT fk_generations_job FOREIGN KEY(job) REFERENCES jobs (name)
);
INSERT INTO "generations" VALUES('flights',1,'stopped',2,1,2,3,NULL,'/logs/1',1,7);
INSERT INTO "generations" VALUES('flights',2,'running',4,4,5,NULL,NULL,'/logs/2',1,9);
CREATE TABLE jobs (
	name VARCHAR(200) NOT NULL,
	artifact TEXT NOT NULL,
	store TEXT NOT NULL,
	master_url TEXT NOT NULL,
	cluster VARCHAR(200),
	conf JSON NOT NULL,
	settings JSON NOT NULL,
	desired_state VARCHAR(20) NOT NULL,
	parallelism INTEGER NOT NULL,
	max_parallelism INTEGER NOT NULL,
	start_from TEXT,
	updated_ms BIGINT NOT NULL,
	CONSTRAINT pk_jobs PRIMARY KEY (name),
	CONSTRAINT fk_jobs_cluster FOREIGN KEY(cluster) REFERENCES clusters (name)
);
INSERT INTO "jobs" VALUES('flights','/jobs/flights.py','/store','spark://h:7077','local','{"spark.cores.max": "2"}','{"input": "it''s"}','running',4,128,'savepoints/run-p4/manifest.json',20);
CREATE TABLE leases (
	job VARCHAR(200) NOT NULL,
	owner VARCHAR(500) NOT NULL,
	acquired_ms BIGINT NOT NULL,
	heartbeat_ms BIGINT NOT NULL,
	expires_ms BIGINT NOT NULL,
	CONSTRAINT pk_leases PRIMARY KEY (job),
	CONSTRAINT fk_leases_job FOREIGN KEY(job) REFERENCES jobs (name)
);
INSERT INTO "leases" VALUES('flights','manual__1',1,2,3);
CREATE TABLE requests (
	id INTEGER NOT NULL,
	job VARCHAR(200) NOT NULL,
	kind VARCHAR(50) NOT NULL,
	arguments JSON NOT NULL,
	idempotency_key VARCHAR(500) NOT NULL,
	state VARCHAR(20) NOT NULL,
	result JSON,
	error TEXT,
	created_ms BIGINT NOT NULL,
	updated_ms BIGINT NOT NULL,
	CONSTRAINT pk_requests PRIMARY KEY (id),
	CONSTRAINT uq_requests_idempotency_key UNIQUE (idempotency_key),
	CONSTRAINT fk_requests_job FOREIGN KEY(job) REFERENCES jobs (name)
);
INSERT INTO "requests" VALUES(1,'flights','stop_with_savepoint','{"name": "run"}','run/stop','done','{"savepoint": "savepoints/run/manifest.json"}',NULL,1,2);
INSERT INTO "requests" VALUES(2,'flights','stop_with_savepoint','{"name": "later"}','later/stop','failed',NULL,'no epoch',1,2);
CREATE TABLE rescale_runs (
	run_id VARCHAR(500) NOT NULL,
	job VARCHAR(200) NOT NULL,
	from_parallelism INTEGER NOT NULL,
	to_parallelism INTEGER NOT NULL,
	from_workers INTEGER,
	to_workers INTEGER,
	method VARCHAR(20) NOT NULL,
	reason TEXT NOT NULL,
	state VARCHAR(20) NOT NULL,
	savepoint TEXT,
	rescaled TEXT,
	steps JSON NOT NULL,
	error TEXT,
	created_ms BIGINT NOT NULL,
	updated_ms BIGINT NOT NULL,
	CONSTRAINT pk_rescale_runs PRIMARY KEY (run_id),
	CONSTRAINT fk_rescale_runs_job FOREIGN KEY(job) REFERENCES jobs (name)
);
INSERT INTO "rescale_runs" VALUES('manual__1','flights',2,4,1,2,'by_reference','drain','running','savepoints/run/manifest.json',NULL,'{"restart": {"started_ms": 5, "ended_ms": null}}',NULL,1,5);
CREATE TABLE savepoints (
	path VARCHAR(1000) NOT NULL,
	job VARCHAR(200) NOT NULL,
	lineage BIGINT NOT NULL,
	epoch BIGINT NOT NULL,
	parallelism INTEGER NOT NULL,
	created_ms BIGINT NOT NULL,
	reason TEXT NOT NULL,
	CONSTRAINT pk_savepoints PRIMARY KEY (path),
	CONSTRAINT fk_savepoints_job FOREIGN KEY(job) REFERENCES jobs (name)
);
INSERT INTO "savepoints" VALUES('savepoints/run/manifest.json','flights',1,7,2,3,'drain');
CREATE INDEX ix_requests_job_state ON requests (job, state);
CREATE INDEX ix_savepoints_job_created_ms ON savepoints (job, created_ms);
CREATE INDEX ix_epochs_job_committed_ms ON epochs (job, committed_ms);
CREATE INDEX ix_rescale_runs_job_created_ms ON rescale_runs (job, created_ms);
COMMIT;
