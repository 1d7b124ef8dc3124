/**
 * Actions: functions with an input and an output, called by the application.
 *
 * Owns: calls with a waiting caller, queued calls, and their results. A call with a waiting caller runs immediately on the node
 * that got it, not from the queue. Does not own: the execution of a run (`runs/worker.ts`, `runs/execute.ts`), routes (`action-routes.ts`),
 * actions as tools (`mcp-routes.ts`).
 */
import { setTimeout as pause } from 'node:timers/promises';
import { type ConnectionReader, type LiveConnection, placeOf } from '../../connections/store/reader.ts';
import { findHead } from '../../connections/store/store.ts';
import { type Db, first } from '../../db/pool.ts';
import { AppError, type ErrorCode, type FieldError } from '../../errors.ts';
import { freeIfLarge } from '../../large-buffer.ts';
import type { DataKey } from '../../vault.ts';
import { type DeployedFunction, getFunction, listFunctions } from '../deploys/store.ts';
import { faultOfJson } from '../isolation/json-limits.ts';
import { hindranceOf, inputContext, outputContext } from '../runs/execute.ts';
import { beginRun, queueRun } from '../runs/queue.ts';
import { openError, type RunError, type StoredError } from '../runs/sealed-output.ts';
import type { Runner } from '../runs/worker.ts';

type ActionPlace = { environmentId: number; integrationKey: string };

/** One call of an action. */
type ActionCall = {
  connection: LiveConnection;
  environment: string;
  found: DeployedFunction;
  /** Any JSON; undefined: none. */
  input: unknown;
  /** The number of further attempts after temporary failures, 0 to 5. */
  retries?: number;
};

export type Actions = {
  /** The enabled actions of an integration. */
  list(at: ActionPlace): Promise<DeployedFunction[]>;
  /** Throws `not_found`, or `disabled_resource` if it is switched off. */
  get(at: ActionPlace & { name: string }): Promise<DeployedFunction>;
  /**
   * Runs the action now, and returns its output as JSON. `signal` ends the run. Throws the `actionError` of a failure, and
   * `unavailable` if too many calls are under way here.
   */
  call(call: ActionCall & { signal: AbortSignal }): Promise<Buffer>;
  /** Queues the call for any node, and returns the ID of its result. */
  queue(call: ActionCall): Promise<string>;
  /** A queued call. Throws `not_found`, also while it is not over. */
  getCall(at: { environmentId: number; id: string }): Promise<EndedCall>;
};

type EndedCall = {
  /** Whether the version that ran is read-only. */
  isReadOnly: boolean;
  /** As `call`. */
  result(): Promise<Buffer>;
};

type ActionsDeps = {
  db: Db;
  connections: Pick<ConnectionReader, 'get'>;
  runner: Pick<Runner, 'runNow' | 'poke'>;
  now: () => Date;
  random?: () => number;
};

/** The maximum number of calls with a waiting caller, on this node for one environment. */
const maxCalls = 200;
/** The pause before the second attempt; it doubles each time. */
const retryMs = 500;
/** Higher than that of all syncs: a caller waits. */
const priority = 20;

export function createActions({ db, connections, runner, now, random = Math.random }: ActionsDeps): Actions {
  const underWay = new Map<number, number>();

  async function callOnce({ signal, ...call }: ActionCall & { signal: AbortSignal }) {
    const claim = await beginRun(db, { ...ofAction(call), environment: call.environment, now: now() });
    const ending = await runner.runNow(claim, signal);
    if (ending === undefined) return { error: actionError(stopped), mayPass: false };
    if (ending.state === 'succeeded') {
      const output = openOutput(ending.output, call.connection.dataKey);
      if (ending.output !== null) freeIfLarge(ending.output);
      return { output };
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
    async call({ retries: wanted, ...call }) {
      const retries = retriesOf(call.found, wanted);
      requireStartable(call);
      const { environmentId } = call.connection;
      const count = underWay.get(environmentId) ?? 0;
      if (count >= maxCalls)
        throw new AppError('unavailable', `This node already runs ${maxCalls} actions.`, {
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
        throw new AppError('not_found', 'The action call does not exist, or has not ended yet.');
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

/** The output is not parsed: it may have megabytes. */
function openOutput(output: Buffer | null, dataKey: DataKey): Buffer {
  return output === null ? Buffer.from('null') : dataKey.open(output, outputContext);
}

const stopped: RunError = {
  code: 'function_unavailable',
  message: 'The node that ran the action stopped. The effects of the action until then remain.',
};

/** An action with `once` is never retried, whatever the caller asks for. */
function retriesOf({ definition }: DeployedFunction, wanted = 0): number {
  return definition.once === true ? 0 : wanted;
}

/** Throws the error that would hold the run, and `invalid_action_input` for an input that no run can get. */
function requireStartable({ connection, found, input }: ActionCall): void {
  const fault = faultOfJson(input);
  if (fault !== undefined)
    throw new AppError('invalid_action_input', `The input is refused. ${fault}`, {
      errors: [{ code: 'custom', message: fault, path: ['input'] }],
    });
  const hindrance = hindranceOf(connection, found.definition.scopes);
  if (hindrance !== undefined) throw hindrance;
}

/** An undefined input is null in the row, and undefined in the call. */
function ofAction({ connection, found, input }: ActionCall) {
  const sealed = input === undefined ? null : connection.dataKey.sealJson(input, inputContext);
  return { connection, found, kind: 'action' as const, priority, input: sealed };
}

/** A thrown error in the form that the run stores. */
type Thrown = { name?: unknown; stack?: unknown; payload?: unknown };

/** Errors of the service that the caller gets unchanged. */
const own: ReadonlySet<string> = new Set([
  'action_is_read_only',
  'connection_needs_reauth',
  'connection_blocked',
  'connection_refresh_failed',
  'missing_scopes',
  'quota_exhausted',
  'unavailable',
] satisfies ErrorCode[]);
const network: ReadonlySet<string> = new Set([
  'ERR_NETWORK',
  'upstream_unreachable',
  'upstream_timeout',
  'upstream_unreadable',
  'upstream_unknown_outcome',
]);

/** The error for the caller of a failed action, with the codes and statuses that official clients expect (see `errors.ts`). */
function actionError(error: RunError): AppError {
  const callerError = appErrorOf(error);
  callerError.quotesCode = true;
  return callerError;
}

function appErrorOf({ code, message, payload }: RunError): AppError {
  const thrown: Thrown = isObject(payload) ? payload : {};
  if (code === 'action_error') return thrownOnPurpose(message, thrown.payload);
  if (code === 'ERR_BAD_REQUEST' || code === 'ERR_BAD_RESPONSE') return refusedThere(message, thrown.payload);
  if (network.has(code)) return new AppError('script_network_error', message);
  if (own.has(code)) {
    // A refusal of the service that the code did not catch is passed on unchanged.
    const facts = 'name' in thrown ? thrown.payload : payload;
    return new AppError(code as ErrorCode, message, facts === undefined ? {} : { payload: facts });
  }
  if (code === 'function_timeout') return new AppError('script_timeout', message);
  if (code === 'function_unavailable') return new AppError('unavailable', message, { retryAfterS: 1 });
  if (code === 'cancelled' || code === 'connection_deleted') return new AppError('script_cancelled', message);
  if (code === 'function_removed') return new AppError('not_found', message);
  if (code === 'function_disabled') return new AppError('disabled_resource', message);
  return new AppError('script_internal_error', message, {
    payload: {
      message,
      name: typeof thrown.name === 'string' ? thrown.name : code,
      stacktrace: typeof thrown.stack === 'string' ? thrown.stack.split('\n').map((line) => line.trim()) : [],
    },
  });
}

/** The caller gets the author's payload unchanged. */
function thrownOnPurpose(message: string, payload: unknown): AppError {
  const given = isObject(payload) ? payload : {};
  const errors = fieldErrors(given.errors);
  const details = { payload: payload ?? {}, ...(errors.length > 0 && { errors }) };
  if (given.type === 'invalid_action_input') return new AppError('invalid_action_input', message, details);
  if (given.type === 'invalid_action_output') return new AppError('invalid_action_output', message, details);
  return new AppError('action_script_runtime_error', message, { payload: payload ?? {} });
}

/** The provider's response, if the code did not catch the error. */
function refusedThere(message: string, payload: unknown): AppError {
  const { status, headers = {}, data } = isObject(payload) ? payload : {};
  if (typeof status !== 'number') return new AppError('script_network_error', message);
  const details = { payload: data ?? null, upstream: { status, headers, body: data ?? null } };
  return new AppError(
    'script_http_error',
    `The provider answered the action with status ${status}.`,
    details,
  );
}

const maxErrors = 100;

function fieldErrors(given: unknown): FieldError[] {
  if (!Array.isArray(given)) return [];
  return given.slice(0, maxErrors).flatMap((fault) => {
    if (!isObject(fault) || typeof fault.message !== 'string') return [];
    const { message, path } = fault;
    const parts = Array.isArray(path)
      ? path.map(String)
      : typeof path === 'string' && path !== ''
        ? path.split('.')
        : [];
    return [{ code: 'custom', message, path: ['input', ...parts] }];
  });
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
