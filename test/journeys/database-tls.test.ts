// A PostgreSQL that accepts encrypted connections only, as managed ones do.
// Slow: it starts a PostgreSQL, and the service six times.

import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { chmodSync, chownSync } from 'node:fs';
import { mkdir, mkdtemp, rm } from 'node:fs/promises';
import path from 'node:path';
import { after, before, test } from 'node:test';
import { findAccount } from '../../server/db/embedded/account.ts';
import { prepareBinaries } from '../../server/db/embedded/binaries.ts';
import { openDb } from '../../server/db/pool.ts';
import { makeCertificate } from '../support/certificate.ts';
import { runCommand } from '../support/command.ts';
import { startPostgres } from '../support/postgres.ts';
import { writeReadable } from '../support/programs.ts';
import { socketPlace } from '../support/scratch.ts';
import { startRunningService } from '../support/service.ts';

let dir: string;
let postgres: Awaited<ReturnType<typeof startPostgres>>;
let authority: string;
let others: ReturnType<typeof makeCertificate>;
let present: (certificate: ReturnType<typeof makeCertificate>) => void;
let settings: Record<string, string>;
before(async () => {
  dir = await mkdtemp(path.join(socketPlace, 'trellis-tls-'));
  const databaseDir = path.join(dir, 'database');
  await mkdir(databaseDir);
  const account = findAccount(path.join(databaseDir, 'data'));
  const own = (file: string) => {
    if (account.identity.uid !== undefined) chownSync(file, account.uid, account.gid);
  };
  chmodSync(dir, 0o755);
  own(databaseDir);
  const certificate = makeCertificate(dir, { names: ['localhost'] });
  authority = certificate.files.ca;
  const elsewhere = path.join(dir, 'elsewhere');
  await mkdir(elsewhere);
  others = makeCertificate(elsewhere, { names: ['db.example'] });
  const at = (name: string) => path.join(databaseDir, name);
  present = ({ cert, key }) => {
    writeReadable(at('server.pem'), cert, account);
    writeReadable(at('server.key'), key, account);
  };
  present(certificate);
  writeReadable(at('hba.conf'), 'hostssl all all 127.0.0.1/32 scram-sha-256\n', account);
  const { postgres: program, libraryPath } = prepareBinaries({ dir: databaseDir, account });
  postgres = await startPostgres({
    binDir: path.dirname(program),
    libraryPath,
    dir: databaseDir,
    account,
    user: 'trellis',
    password: randomBytes(16).toString('hex'),
    settings: {
      ssl: 'on',
      ssl_cert_file: at('server.pem'),
      ssl_key_file: at('server.key'),
      hba_file: at('hba.conf'),
      max_connections: '50',
      shared_buffers: '32MB',
    },
  });
  settings = {
    TRELLIS_ENCRYPTION_KEYS: `k1:${randomBytes(32).toString('base64')}`,
    TRELLIS_SANDBOX: 'off',
    PORT: '0',
    DATA_DIR: path.join(dir, 'data'),
  };
});
after(async () => {
  await postgres?.stop();
  await rm(dir, { recursive: true, force: true });
});

/** With `query`, as a platform gives its address. */
function urlOf(query: string): string {
  const url = new URL(postgres.url);
  url.hostname = 'localhost';
  return `${url.href}${query}`;
}

async function assertRefused(query: string, reason: RegExp): Promise<void> {
  const DATABASE_URL = urlOf(query);
  const { code, stderr } = await runCommand(['start'], { ...settings, DATABASE_URL });
  assert.equal(code, 1, query);
  assert.match(stderr, reason, query);
}

test('sslmode=verify-full with the authority of the server connects, and all connections are encrypted', async () => {
  const DATABASE_URL = urlOf(`?sslmode=verify-full&sslrootcert=${authority}`);
  const service = await startRunningService({
    dataDir: path.join(dir, 'data'),
    env: { ...settings, DATABASE_URL },
  });
  let code: number | null;
  try {
    await using db = openDb({ url: DATABASE_URL }, { maxConnections: 1 });
    // A connection that is starting is not encrypted yet.
    assert.deepEqual(
      await db.query(`select distinct ssl from pg_stat_ssl join pg_stat_activity using (pid)
        where backend_type = 'client backend' and state <> 'starting'`),
      [{ ssl: true }],
    );
    const nodes = await runCommand(['nodes'], { ...settings, DATABASE_URL });
    assert.equal(nodes.code, 0, nodes.stderr);
  } finally {
    code = await service.stop();
  }
  assert.equal(code, 0);
});

test('a start is refused without TLS, without the authority, and with another one', async () => {
  const isUntrusted = /unable to (verify the first certificate|get local issuer certificate)|self-signed/;
  await assertRefused('', /no encryption/);
  await assertRefused('?sslmode=verify-full', isUntrusted);
  await assertRefused(`?sslmode=verify-full&sslrootcert=${others.files.ca}`, isUntrusted);
  await assertRefused(`?sslmode=verify-full&sslrootcert=${authority}.absent`, /ENOENT.*ca\.pem\.absent/);
});

test('a start is refused if the certificate has another name', async () => {
  present(others);
  await postgres.restart('fast');
  await assertRefused(`?sslmode=verify-full&sslrootcert=${others.files.ca}`, /altnames/);
});
