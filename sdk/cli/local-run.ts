/** What the commands share that run a function here: its code out of the folder, and what it is to be told. */
import { resolve } from 'node:path';
import { bundle } from '../compile/bundle.ts';
import { compile } from '../compile/compile.ts';
import { shown } from '../compile/fault.ts';
import type { FunctionFile } from '../compile/files.ts';
import type { About } from '../functions/harness/service.ts';
import type { Json, JsonObject } from '../local/outcome.ts';
import type { Reads } from '../local/reads.ts';
import type { Api } from './api.ts';
import { readJson, readJsonObject, required, serviceOptions, UsageError } from './arguments.ts';
import { findPaginate, getConnection, getIntegration, liveReads, type Place } from './live-reads.ts';

/** Of the commands that run local code on a connection. */
export const runOptions = {
  ...serviceOptions,
  folder: { type: 'string', default: './functions' },
  connection: { type: 'string' },
  input: { type: 'string' },
  checkpoint: { type: 'string' },
  metadata: { type: 'string' },
  variant: { type: 'string', default: 'base' },
  'allow-writes': { type: 'boolean', default: false },
} as const;

export type RunValues = {
  connection?: string | undefined;
  input?: string | undefined;
  checkpoint?: string | undefined;
  metadata?: string | undefined;
  variant: string;
  'allow-writes': boolean;
};

export type Given = {
  connectionId: string;
  input: Json | undefined;
  checkpoint: Json;
  metadata: JsonObject | undefined;
  variant: string;
  mayWrite: boolean;
};

/** Throws a UsageError. */
export function readGiven(values: RunValues): Given {
  return {
    connectionId: required('--connection', values.connection),
    input: readJson('--input', values.input) as Json | undefined,
    checkpoint: (readJsonObject('--checkpoint', values.checkpoint) as JsonObject | undefined) ?? null,
    metadata: readJsonObject('--metadata', values.metadata) as JsonObject | undefined,
    variant: values.variant,
    mayWrite: values['allow-writes'],
  };
}

type Of = { file: FunctionFile; complain: (line: string) => void };

/** The bundle that a deploy would send, its types left aside; undefined where there are faults, which are told. */
export async function bundleOf(folder: string, { file, complain }: Of): Promise<string | undefined> {
  const bundled = await bundle(folder, file.file);
  if ('code' in bundled) return bundled.code;
  for (const fault of bundled.faults) complain(shown(fault));
  return undefined;
}

/** As `bundleOf`, with its types checked. */
export async function codeOf(folder: string, { file, complain }: Of): Promise<string | undefined> {
  const { functions, faults, warnings } = await compile(folder, { files: [file] });
  for (const warning of warnings) complain(warning);
  for (const fault of faults) complain(shown(fault));
  return functions[0]?.code;
}

export type LiveRun = {
  place: Place;
  connection: JsonObject;
  about: About;
  metadata: JsonObject;
  reads: Reads;
};

/** What the service tells before a run begins. Throws its refusals. */
export async function prepareLive(
  api: Api,
  { file, given }: { file: FunctionFile; given: Given },
): Promise<LiveRun> {
  const { integrationKey, kind } = file;
  const { connectionId, variant } = given;
  if (kind !== 'sync' && variant !== 'base') throw new UsageError('Syncs alone have variants.');
  const place = { integrationKey, connectionId };
  const connection = await getConnection(api, place);
  const integration = await getIntegration(api, integrationKey);
  const provider = String(connection.provider);
  const paginate = await findPaginate(api, provider);
  return {
    place,
    connection,
    about: {
      ...{ connectionId, providerConfigKey: integrationKey, variant },
      provider,
      environmentName: integration.environmentName,
      ...(paginate && { paginate }),
    },
    metadata: given.metadata ?? ((connection.metadata ?? {}) as JsonObject),
    reads: liveReads(api, { place, connection, integration, mayWrite: given.mayWrite }),
  };
}

/** Below the process's folder. */
export function folderOf({ folder }: { folder: string }): string {
  return resolve(folder);
}
