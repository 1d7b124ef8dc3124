/** Handles remote calls of nodes that run no customer code: the other side of `remote-runner.ts`. */
import type { ConnectionReader } from '../../connections/store/reader.ts';
import { type Db, mayPass } from '../../db/pool.ts';
import { environmentKey } from '../../environments/store.ts';
import type { HandleRemoteCall } from '../../nodes/remote-call-server.ts';
import type { DataKey, Vault } from '../../vault.ts';
import { describeHere } from '../deploys/examine.ts';
import type { Runtime } from '../isolation/runtime.ts';
import { type Claim, takeClaim } from './claims.ts';
import { functionsFor, type ValidateConnection } from './on-event.ts';
import {
  asBytes,
  type DescribeRequest,
  type EndingAnswer,
  type RunRequest,
  remoteCallContext,
  type ValidateRequest,
} from './remote-runner.ts';
import { storedError } from './sealed-output.ts';
import type { Ending } from './settle.ts';
import type { Runner } from './worker.ts';

export function remoteHandlers({
  db,
  vault,
  runtime,
  reader,
  runner,
  validate,
}: {
  db: Db;
  vault: Vault;
  runtime: Pick<Runtime, 'run'>;
  reader: Pick<ConnectionReader, 'getIntegration'>;
  runner: Pick<Runner, 'runNow' | 'isStopping'>;
  validate: ValidateConnection;
}): Record<string, HandleRemoteCall> {
  return {
    async run(request, { environmentId, signal }) {
      const order = JSON.parse(request.toString()) as RunRequest;
      let claim: Claim | undefined;
      let key: DataKey | undefined;
      try {
        if (order.opensErrors) key = await environmentKey(db, { environmentId, vault });
        claim = await takeClaim(db, order);
      } catch (error) {
        if (mayPass(error)) return undefined;
        throw error;
      }
      if (claim === undefined) return answerOf(undefined);
      // Another node may take it then: the claim is valid for the node that has the remote call.
      return runner.isStopping() ? undefined : answerOf(await runner.runNow(claim, signal), key);
    },

    async judge(request, { environmentId }) {
      const key = await environmentKey(db, { environmentId, vault });
      const opened = key.openJson(request, remoteCallContext) as ValidateRequest;
      const { integrationKey, functionId, accessExpiresAt, opensErrors, ...candidate } = opened;
      const all = await functionsFor(db, { environmentId, integrationKey, event: 'validate-connection' });
      const found = all.find(({ id }) => id === functionId);
      if (found === undefined) return answerOf(undefined);
      const integration = await reader.getIntegration({ environmentId, integrationKey });
      const expires = accessExpiresAt === null ? undefined : new Date(accessExpiresAt);
      return answerOf(
        await validate({ candidate: { ...candidate, integration, accessExpiresAt: expires }, found }),
        opensErrors && key,
      );
    },

    async describe(request, { environmentId, signal }) {
      const { code } = JSON.parse(request.toString()) as DescribeRequest;
      return asBytes(await describeHere(runtime)({ environmentId, code, signal }));
    },
  };
}

/** `key` seals an error in transit. */
function answerOf(ending: Ending | undefined, key?: DataKey): Buffer {
  return asBytes({ ending: wireEnding(ending, key) } satisfies EndingAnswer);
}

/** Neither an output nor a key is sent to another node. */
function wireEnding(ending: Ending | undefined, key: DataKey | undefined): EndingAnswer['ending'] {
  if (ending === undefined) return null;
  if (ending.state === 'succeeded') return { state: 'succeeded' };
  if (ending.state !== 'failed') return ending;
  const { by: _, error, ...rest } = ending;
  return { ...rest, error: storedError(error, key && { dataKey: key, connectionRow: null }) };
}
