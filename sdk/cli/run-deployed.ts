/** Starts a function that is deployed, on one connection, and follows it. */
import { type Api, bodyOf } from './api.ts';
import { followRun, pause, type Run } from './follow-run.ts';
import { places, type Target } from './target.ts';

export type DeployedRun = {
  target: Target;
  connectionId: string;
  /** Of a sync. */
  variant: string;
  /** Of a sync: how many records of held deletions may be deleted, by model. */
  allowed?: Record<string, number> | undefined;
  /** Of an action. */
  input: unknown;
  print: (line: string) => void;
  signal?: AbortSignal | undefined;
};
type Deployed = { type: 'sync' | 'action' | 'on-event'; enabled: boolean };

/** What came of it; `output` where it is an action that succeeded. Throws what the service refuses. */
export async function runDeployed(api: Api, of: DeployedRun): Promise<{ run: Run; output?: unknown }> {
  const { target, connectionId } = of;
  const { integrationKey, name, kind } = target;
  const type = kind && `?type=${kind === 'on_event' ? 'on-event' : kind}`;
  const path = `/integrations/${encodeURIComponent(integrationKey)}/functions/${encodeURIComponent(name)}`;
  const { data } = bodyOf<{ data: Deployed }>(await api.get(`${path}${type ?? ''}`));
  if (data.type === 'on-event') {
    throw new Error('An event function runs when its event happens, and not otherwise. See trellis dryrun.');
  }
  if (!data.enabled) throw new Error(`${integrationKey}/${places[data.type]}/${name} is turned off.`);
  const headers = { 'connection-id': connectionId, 'provider-config-key': integrationKey };
  if (data.type !== 'sync' && of.allowed !== undefined)
    throw new Error('An action has no deletions that are held: --allow-mass-delete is for a sync.');
  if (data.type === 'sync') return { run: await runSync(api, of) };
  const started = await api.post(
    '/action/trigger',
    { action_name: name, ...(of.input !== undefined && { input: of.input }) },
    { ...headers, 'x-async': 'true' },
  );
  const { id } = bodyOf<{ id: string }>(started);
  const run = await followRun(api, id, of);
  return run.state === 'succeeded' ? { run, output: bodyOf(await api.get(`/action/${id}`)) } : { run };
}

async function runSync(api: Api, of: DeployedRun): Promise<Run> {
  const { target, connectionId, variant, signal } = of;
  const { integrationKey, name } = target;
  const place = new URLSearchParams({ provider_config_key: integrationKey, connection_id: connectionId });
  const newest = async (): Promise<Run | undefined> => {
    const query = new URLSearchParams([...place, ['function', name], ['kind', 'sync'], ['limit', '100']]);
    const { runs } = bodyOf<{ runs: Run[] }>(await api.get(`/functions/runs?${query}`));
    return runs.find((run) => run.variant === variant);
  };
  const before = await newest();
  if (before?.state === 'running') of.print('It runs already; the run that follows is waited for.');
  bodyOf(
    await api.post('/sync/trigger', {
      syncs: [{ name, variant }],
      provider_config_key: integrationKey,
      connection_id: connectionId,
      ...(of.allowed && { allow_mass_delete: of.allowed }),
    }),
  );
  for (;;) {
    const run = await newest();
    const isNew = run !== undefined && (run.id !== before?.id || before.state === 'waiting');
    if (isNew) return followRun(api, run.id, of);
    // While one goes on nothing holds the sync any more, whatever its last end says.
    const held = run?.state === 'running' ? undefined : await heldSync(api, { place, name, variant });
    if (held !== undefined) throw new Error(`It does not start: ${held.message} (${held.code})`);
    if (signal?.aborted) throw new Error('It was not started.');
    await pause(300, signal);
  }
}

type Held = { code: string; message: string };

/** Why the service starts no run of it. */
async function heldSync(
  api: Api,
  { place, name, variant }: { place: URLSearchParams; name: string; variant: string },
): Promise<Held | undefined> {
  const { syncs } = bodyOf<{ syncs: { variant: string; held: Held | null }[] }>(
    await api.get(`/sync/status?${place}&syncs=${name}::${variant}`),
  );
  return syncs.find((sync) => sync.variant === variant)?.held ?? undefined;
}
