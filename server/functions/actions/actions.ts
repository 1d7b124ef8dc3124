/**
 * Actions: what is called with an input and answers an output.
 *
 * Owns: calls that wait and calls that do not, and what their callers get. A call that waits runs at once on the node that
 * got it, past the queue. Does not own: how a run is carried out (`worker.ts`, `execute.ts`), its routes
 * (`action-routes.ts`), actions as tools (`mcp-routes.ts`).
 */
import { setTimeout as pause } from 'node:timers/promises';
import { type ConnectionReader, type LiveConnection, placeOf } from '../../connections/reader.ts';
import { findHead } from '../../connections/store.ts';
import { type Db, first } from '../../db/pool.ts';
import { AppError } from '../../errors.ts';
import type { DataKey } from '../../vault.ts';
import { type DeployedFunction, getFunction, listFunctions } from '../deploys/store.ts';
import { faultOfJson } from '../isolation/json-limits.ts';
import { beginRun, queueRun } from '../runs/asked-run.ts';
import { hindranceOf, inputContext, outputContext } from '../runs/execute.ts';
import { openError, type RunError, type StoredError } from '../runs/sealed-output.ts';
import type { Runner } from '../runs/worker.ts';
import { actionError } from './action-error.ts';

type At = { environmentId: number; integrationKey: string };

/** One call of an action. */
type ActionCall = {
  connection: LiveConnection;
  environment: string;
  found: DeployedFunction;
  /** Any JSON; undefined: none. */
  input: unknown;
  /** Further attempts where one fails in a way that passes, 0 to 5. */
  retries?: number;
};

export type Actions = {
  /** Those of an integration that are switched on. */
  list(at: At): Promise<DeployedFunction[]>;
  /** Throws `not_found`, or `disabled_resource` where it is switched off. */
  get(at: At & { name: string }): Promise<DeployedFunction>;
  /**
   * Runs it now and answers its output as JSON. `signal` ends the run. Throws what `action-error.ts` makes of a failure, and
   * `unavailable` where too many are under way here.
   */
  call(call: ActionCall & { signal: AbortSignal }): Promise<Buffer>;
  /** Leaves it to whichever node comes to it; answers the ID to ask for its result with. */
  queue(call: ActionCall): Promise<string>;
  /** One that was left. Throws `not_found` while it is not over, too. */
  getCall(at: { environmentId: number; id: string }): Promise<EndedCall>;
};

type EndedCall = {
  /** Of the version that ran. */
  isReadOnly: boolean;
  /** As `call`. */
  result(): Promise<Buffer>;
};

type Deps = {
  db: Db;
  connections: Pick<ConnectionReader, 'get'>;
  runner: Pick<Runner, 'runNow' | 'poke'>;
  now: () => Date;
  random?: () => number;
};

/** Calls that wait, on this node and of one environment. The processes behind them are far fewer. */
const maxCalls = 200;
/** Before the second attempt of a call that waits; twice as long each time. */
const retryMs = 500;
/** A caller waits for it: before all syncs of its connection. */
const priority = 20;

export function createActions({ db, connections, runner, now, random = Math.random }: Deps): Actions {
  const underWay = new Map<number, number>();

  async function callOnce({ signal, ...call }: ActionCall & { signal: AbortSignal }) {
    const claim = await beginRun(db, { ...ofAction(call), environment: call.environment, now: now() });
    const ending = await runner.runNow(claim, signal);
    if (ending === undefined) return { error: actionError(stopped), mayPass: false };
    if (ending.state === 'succeeded') {
      return { output: openOutput(ending.output, call.connection.dataKey) };
    }
    return { error: actionError(ending.error), mayPass: ending.state === 'failed' && ending.mayPass };
  }

  return {
    async list(at) {
      const all = await listFunctions(db, { ...at, kind: 'action' });
      return all.filter(({ isEnabled }) => isEnabled);
    },
    async get(at) {
      const found = await getFunction(db, { ...at, kind: 'action' });
      if (!found.isEnabled)
        throw new AppError('disabled_resource', `The action "${at.name}" is switched off.`);
      return found;
    },
    async call({ retries: asked, ...call }) {
      const retries = retriesOf(call.found, asked);
      requireStartable(call);
      const { environmentId } = call.connection;
      const count = underWay.get(environmentId) ?? 0;
      if (count >= maxCalls)
        throw new AppError('unavailable', `${maxCalls} actions are under way here already.`, {
          retryAfterS: 1,
        });
      underWay.set(environmentId, count + 1);
      try {
        for (let attempt = 1; ; attempt++) {
          const came = await callOnce(call);
          if (came.error === undefined) return came.output;
          if (!came.mayPass || attempt > retries || call.signal.aborted) throw came.error;
          await pause(retryMs * 2 ** (attempt - 1) * (0.75 + random() / 2), undefined, {
            signal: call.signal,
          });
        }
      } finally {
        const left = (underWay.get(environmentId) ?? 1) - 1;
        if (left === 0) underWay.delete(environmentId);
        else underWay.set(environmentId, left);
      }
    },
    async queue(call) {
      requireStartable(call);
      const maxAttempts = 1 + retriesOf(call.found, call.retries);
      const id = await db.transaction((tx) =>
        queueRun(tx, { ...ofAction(call), trigger: 'action', maxAttempts, now: now() }),
      );
      runner.poke();
      return id;
    },
    async getCall({ environmentId, id }) {
      const run = first(
        await db.query<{
          connectionId: number;
          isReadOnly: boolean;
          output: Buffer | null;
          error: StoredError | null;
        }>(
          `select run.connection_id as "connectionId", run.output, run.error,
             coalesce((version.definition ->> 'read_only')::boolean, false) as "isReadOnly"
           from run
           join function_version version on version.id = run.version_id
           where run.id = $1
             and run.environment_id = $2
             and run.kind = 'action'
             and run.trigger = 'action'
             and run.state not in ('waiting', 'running')`,
          [id, environmentId],
        ),
      );
      const head = run && (await findHead(db, { id: run.connectionId, environmentId }));
      if (run === undefined || head === undefined)
        throw new AppError('not_found', 'There is no such call of an action, or it is not over yet.');
      const { isReadOnly, error, output } = run;
      return {
        isReadOnly,
        async result() {
          if (error !== null && error.sealed === undefined) throw actionError(error);
          if (error === null && output === null) return Buffer.from('null');
          const { dataKey } = await connections.get(placeOf(head));
          if (error !== null) throw actionError(openError(error, dataKey));
          return openOutput(output, dataKey);
        },
      };
    },
  };
}

/** As it is: an output may have megabytes. */
function openOutput(output: Buffer | null, dataKey: DataKey): Buffer {
  return output === null ? Buffer.from('null') : dataKey.open(output, outputContext);
}

const stopped: RunError = {
  code: 'function_unavailable',
  message: 'The node that ran the action stopped. What it did until then is done.',
};

/** An action with `once` is never retried, whatever the caller asks for. */
function retriesOf({ definition }: DeployedFunction, asked = 0): number {
  return definition.once === true ? 0 : asked;
}

/** Throws what a run would be held by: nobody waits in line to hear it. And `invalid_action_input` for what no run could be given. */
function requireStartable({ connection, found, input }: ActionCall): void {
  const fault = faultOfJson(input);
  if (fault !== undefined)
    throw new AppError('invalid_action_input', `The input is refused. ${fault}`, {
      errors: [{ code: 'custom', message: fault, path: ['input'] }],
    });
  const hindrance = hindranceOf(connection, found.definition.scopes);
  if (hindrance !== undefined) throw hindrance;
}

/** JSON knows no undefined: what is not given is null in the row and nothing in the call. */
function ofAction({ connection, found, input }: ActionCall) {
  const sealed = input === undefined ? null : connection.dataKey.sealJson(input, inputContext);
  return { connection, found, kind: 'action' as const, priority, input: sealed };
}
