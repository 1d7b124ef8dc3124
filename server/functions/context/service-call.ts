/** The types and helpers of a call from the code of a run to the service. */
import type { z } from 'zod';
import type { Activity } from '../../activity/writer.ts';
import type { Brand } from '../../brand.ts';
import type { CredentialSource } from '../../connections/refresh/credentials.ts';
import type { ConnectionReader, LiveConnection } from '../../connections/store/reader.ts';
import type { Db } from '../../db/pool.ts';
import { AppError } from '../../errors.ts';
import type { Outbound } from '../../outbound/outbound.ts';
import type { Vault } from '../../vault.ts';
import type { Answer, CallContext } from '../isolation/run-order.ts';
import type { Right } from './fence.ts';
import type { InnerProxy } from './inner-proxy.ts';
import type { Secrets } from './secrets.ts';

export type ContextDeps = {
  db: Db;
  vault: Vault;
  brand: Brand;
  baseUrl: string;
  webhookBaseUrl: string;
  reader: ConnectionReader;
  credentials: Pick<CredentialSource, 'fresh' | 'refreshedLiving'>;
  outbound: Pick<Outbound, 'fetchWhole'>;
  proxy: InnerProxy;
  activity: Activity;
};

/** The run that a context belongs to. */
export type RunFacts = {
  right: Right;
  environmentId: number;
  environment: string;
  functionId: number;
  functionName: string;
  versionId: number;
  /** A run of the kind `sync`: it reads the list from the checkpoint on. Runs of other kinds may be concurrent. */
  isSync: boolean;
  integrationKey: string;
  connectionId: string;
  /** The row of the connection: another row with the same ID is another account. `noRow` if it is not stored yet. */
  connectionRow: number;
  variant: string;
  /** The models that it may save; empty for a function that is not a sync. */
  models: readonly string[];
  /** `interactive`: a caller waits for it. */
  priority: 'background' | 'interactive';
  /** It is an action that is declared read-only. */
  isReadOnly: boolean;
  /** Collects the secrets that the run received. */
  secrets: Secrets;
  /** Updated as records are saved. */
  counts: RunCounts;
};

/** How many records of a model a run changed. */
export type ModelCounts = { added: number; updated: number; deleted: number; unchanged: number };
/** By model. */
export type RunCounts = Record<string, ModelCounts>;

/** Handles the calls of one name. */
export type ServiceCall = (args: unknown, call: CallContext) => Promise<Answer>;

/** A call whose arguments are parsed by a schema. Throws `invalid_body` that names the call and the field. */
export function serviceCall<S extends z.ZodType>(
  name: string,
  schema: S,
  answer: (args: z.output<S>, call: CallContext) => Promise<unknown>,
): [string, ServiceCall] {
  return streamingCall(name, schema, async (args, call) => ({ value: await answer(args, call) }));
}

/** As `serviceCall`, with an answer that may have a stream. */
export function streamingCall<S extends z.ZodType>(
  name: string,
  schema: S,
  answer: (args: z.output<S>, call: CallContext) => Promise<Answer>,
): [string, ServiceCall] {
  const work: ServiceCall = async (args, call) => {
    const read = schema.safeParse(args ?? {});
    if (!read.success) throw argumentsFault(name, read.error.issues);
    return answer(read.data, call);
  };
  return [name, work];
}

export function argumentsFault(name: string, issues: readonly z.core.$ZodIssue[]): AppError {
  const errors = issues.map(({ code, message, path }) => ({
    code: code ?? 'custom',
    message,
    path: path.map(String),
  }));
  const [fault] = errors;
  const where = fault && ` (${fault.path.join('.') || 'the argument'}: ${fault.message})`;
  return new AppError('invalid_body', `The arguments of ${name} are not valid${where ?? ''}.`, { errors });
}

/** The row ID of a connection that is not stored yet. */
export const noRow = 0;

/** Throws `unknown_connection` if the ID belongs to another connection by now. */
export function requireRow(found: LiveConnection, row: number): LiveConnection {
  if (row !== noRow && found.id !== row) throw new AppError('unknown_connection');
  return found;
}
