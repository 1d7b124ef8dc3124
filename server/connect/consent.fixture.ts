import assert from 'node:assert/strict';
import { findConnection } from '../connections/store/store.ts';
import type { ConnectBench } from './connect.fixture.ts';

export type Decision = Parameters<ConnectBench['consent']>[1];

/** What people do at a bench: they go to the provider, decide there and come back. `bench` is asked for at each use. */
export function people(bench: () => ConnectBench) {
  return {
    /** Forgets what tests before have left, here and at the provider. */
    async clear(): Promise<void> {
      for (const table of ['event', 'connection', 'issued_token'])
        await bench().db.query(`delete from ${table}`);
      for (const account of ['ada@example.com', 'grace@example.com'])
        await bench().control('POST /revoke', { account });
    },

    /** The whole way of one person; gives the callback's answer. */
    async dance(token: string, decision: Decision = {}, browser = bench().browser()) {
      return browser.visit(await bench().consent(await browser.begin(token), decision));
    },

    /** Connects through a new session; the connection that there is then. */
    async connect(decision: Decision = {}) {
      const { status, text } = await this.dance(await bench().session(), decision);
      assert.equal(status, 200, text);
      return this.only();
    },

    /** The only connection, with its credentials. */
    async only() {
      const [row, ...others] = await bench().connections();
      assert.ok(row);
      assert.deepEqual(others, []);
      const connection = await findConnection(bench().db, {
        environmentId: bench().environment.id,
        integrationKey: 'sheets',
        connectionId: row.connection_id,
        vault: bench().reading.vault,
      });
      assert.ok(connection?.credentials.type === 'OAUTH2');
      return { ...connection, credentials: connection.credentials };
    },
  };
}
