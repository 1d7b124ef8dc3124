import { writeCommandAudit } from '../../../server/activity/audit.ts';
import { modeNamed } from '../../../server/auth-modes/modes.ts';
import type { Db } from '../../../server/db/pool.ts';
import { readSettings } from '../../../server/integrations/settings-input.ts';
import {
  createIntegration,
  findIntegration,
  type Integration,
  type IntegrationReading,
} from '../../../server/integrations/store.ts';
import { integrationKey, readScopes } from '../../../server/integrations/wire.ts';
import type { ProviderDefinition } from '../../../server/providers/definition.ts';
import type { IntegrationFilter } from '../ledger.ts';
import { failureOf } from '../report.ts';
import {
  type PeerIntegration,
  peerIntegration,
  peerIntegrations,
  peerProvider,
  readOptional,
  readRequired,
} from './answers.ts';
import { type Peer, PeerError } from './client.ts';

/**
 * The peer's integrations, and the plan for each: `use` the one with its key here, `make` one, or `skip` it and its
 * connections, with the reason.
 */
export type PlannedIntegration = {
  key: string;
  peerProvider: string;
  /** The provider here; undefined if the catalogue has none that fits. */
  provider: string | undefined;
  /** Whether a refresh invalidates the token that the other side holds: then only one of the two may refresh. */
  rotates: boolean;
  client: { id: string; secret: string } | undefined;
  webhookSecret: string | undefined;
  scopes: string[] | undefined;
  forwardsWebhooks: boolean;
  displayName: string | undefined;
} & Plan;

/** `reason` is a code: why it is skipped, or what is missing; `nextStep` says what to do about it. */
type Plan = { plan: 'make' | 'use' | 'skip'; reason?: string; nextStep?: string };

const skip = (reason: string, nextStep: string): Plan => ({ plan: 'skip', reason, nextStep });

type PlanSettings = {
  environmentId: number;
  reading: IntegrationReading;
  /** Names here of the peer's providers, if they differ. */
  providerNames: ReadonlyMap<string, string>;
  filter: IntegrationFilter;
};

/** Reads and compares; nothing is changed. Throws if the peer has no integration of a key in `filter`. */
export async function planIntegrations(
  db: Db,
  peer: Peer,
  settings: PlanSettings,
): Promise<PlannedIntegration[]> {
  const { filter } = settings;
  const { data } = readRequired(peerIntegrations, await peer.get('/integrations'), '/integrations');
  const missing = [...(filter ?? [])].filter((key) => !data.some(({ unique_key }) => unique_key === key));
  if (missing.length > 0)
    throw new Error(`--integrations: the source has no integration ${missing.join(', ')}.`);
  const modes = new Map<string, string | undefined>();
  const planned: PlannedIntegration[] = [];
  for (const one of data) {
    if (filter?.has(one.unique_key) === false) continue;
    if (!modes.has(one.provider)) modes.set(one.provider, await authModeOf(peer, one.provider));
    planned.push(await planOne(db, peer, { one, mode: modes.get(one.provider), settings }));
  }
  return planned;
}

/** Undefined if the peer does not give it. */
async function authModeOf(peer: Peer, provider: string): Promise<string | undefined> {
  try {
    const response = await peer.get(`/providers/${encodeURIComponent(provider)}`);
    return peerProvider.safeParse(response).data?.data.auth_mode ?? undefined;
  } catch (error) {
    if (error instanceof PeerError) return undefined;
    throw error;
  }
}

async function planOne(
  db: Db,
  peer: Peer,
  { one, mode, settings }: { one: PeerIntegration; mode: string | undefined; settings: PlanSettings },
): Promise<PlannedIntegration> {
  const { reading, environmentId, providerNames } = settings;
  const { unique_key: key, provider: peerProvider } = one;
  const provider = providerNames.get(peerProvider) ?? peerProvider;
  const definition = reading.catalog.find(provider);
  const base = {
    key,
    peerProvider,
    client: undefined,
    webhookSecret: undefined,
    scopes: undefined,
    provider: definition && provider,
    rotates: definition?.auth_mode === 'OAUTH2' && definition.refresh.rotates,
    forwardsWebhooks: true,
    displayName: one.display_name ?? undefined,
  };
  const skipped = (...reason: Parameters<typeof skip>) => ({ ...base, ...skip(...reason) });
  if (definition === undefined)
    return skipped(
      'unknown_provider',
      `This installation has no provider "${provider}". Write a definition for it (docs/guides/providers.md), or map it to ` +
        `another provider: --provider ${peerProvider}=NAME.`,
    );
  if (mode !== undefined && mode !== definition.auth_mode)
    return skipped(
      'auth_mode_differs',
      `"${peerProvider}" uses ${mode} at the source, and "${provider}" uses ${definition.auth_mode} here, so the credentials ` +
        'cannot be imported. The users must connect again.',
    );
  // Keys of dots alone mean another path (RFC 3986 §5.2.4), however they are escaped.
  if (!integrationKey.safeParse(key).success || key === '.' || key === '..')
    return skipped('invalid_id', 'The ID has a character that is not allowed, or consists of dots.');
  const details = await readDetails(peer, key).catch((error: unknown) => {
    if (error instanceof PeerError) return error;
    throw error;
  });
  if (details instanceof PeerError)
    return skipped(
      details.code,
      `${details.message}. Run this command again, or create the integration manually.`,
    );
  const { isShared, ...facts } = details;
  const given = { ...base, ...facts };
  const found = await findIntegration(db, { ...reading, environmentId, key });
  const plan =
    found === undefined
      ? planForMissing(given, { definition, isShared })
      : planForFound(given, { found, provider, isShared });
  return { ...given, ...plan };
}

async function readDetails(peer: Peer, key: string) {
  const path = `/integrations/${encodeURIComponent(key)}`;
  const response = await peer.get(path, { include: 'credentials' }).catch(async (error: unknown) => {
    // A key may have the right to read integrations without their secrets.
    if (error instanceof PeerError && error.status === 403) return peer.get(path);
    throw error;
  });
  const { data } = readOptional(peerIntegration, response, path);
  const {
    client_id: id,
    client_secret: secret,
    scopes,
    webhook_secret: webhookSecret,
  } = data.credentials ?? {};
  return {
    isShared: data.preconfigured_credentials,
    client: id && secret ? { id, secret } : undefined,
    webhookSecret: webhookSecret || undefined,
    scopes: readScopes(scopes ?? undefined),
    forwardsWebhooks: data.forward_webhooks ?? true,
  };
}

type Compared = Pick<PlannedIntegration, 'key' | 'client'>;

const sharedClient = () =>
  skip(
    'client_is_the_peers',
    'Its OAuth client belongs to the operator of the source, so this service cannot refresh the tokens. Register your own ' +
      'client at the provider; the users must connect again.',
  );

function planForMissing(
  { key, client }: Compared,
  { definition, isShared }: { definition: ProviderDefinition; isShared: boolean },
): Plan {
  const { auth_mode: mode } = definition;
  const hasPages = modeNamed(mode).authorization !== undefined;
  if (hasPages && isShared) return sharedClient();
  const required = Object.entries(definition.integration_config).flatMap(([name, field]) =>
    field.required ? [name] : [],
  );
  if (required.length > 0)
    return skip(
      'settings_missing',
      `The source does not return integration_config ${required.join(', ')}. Create the integration "${key}" with these ` +
        'settings, then run this command again.',
    );
  if (hasPages && client === undefined)
    return {
      plan: 'make',
      reason: 'client_missing',
      nextStep:
        'The source does not return the client ID and secret. Set them before the first token is refreshed: ' +
        `PATCH /integrations/${encodeURIComponent(key)}.`,
    };
  return { plan: 'make' };
}

function planForFound(
  { key, client }: Compared,
  { found, provider, isShared }: { found: Integration; provider: string; isShared: boolean },
): Plan {
  if (found.provider.name !== provider)
    return skip(
      'provider_differs',
      `The provider of "${key}" is ${found.provider.name} here and ${provider} at the source. Change the ID of one of them.`,
    );
  if (found.isTest)
    return skip(
      'is_test',
      `"${key}" has test credentials. Set the client ID and secret of the source, then run this command again.`,
    );
  if (modeNamed(found.provider.auth_mode).authorization === undefined) return { plan: 'use' };
  if (isShared) return sharedClient();
  if (client !== undefined && found.client !== undefined && client.id !== found.client.clientId)
    return skip(
      'client_differs',
      "The client ID differs from the source's, and only the client that received a token can refresh it. Set the client " +
        'of the source, or create the integration with another ID.',
    );
  if (found.client === undefined)
    return {
      plan: 'use',
      reason: 'client_missing',
      nextStep: `Set the client ID and secret: PATCH /integrations/${encodeURIComponent(key)}.`,
    };
  return { plan: 'use' };
}

/**
 * The integrations of the plan by key, made if they are missing. One that cannot be made is skipped instead.
 */
export async function makeIntegrations(
  db: Db,
  planned: readonly PlannedIntegration[],
  settings: Pick<PlanSettings, 'environmentId' | 'reading'>,
): Promise<{ planned: PlannedIntegration[]; integrations: Map<string, Integration> }> {
  const integrations = new Map<string, Integration>();
  const done: PlannedIntegration[] = [];
  for (const one of planned) {
    try {
      if (one.plan !== 'skip') integrations.set(one.key, await ensure(db, one, settings));
      done.push(one);
    } catch (error) {
      const failure = failureOf(error);
      if (failure === undefined) throw error;
      const nextStep = `${failure.detail} Create the integration manually, then run this command again.`;
      done.push({ ...one, ...skip(failure.reason, nextStep) });
    }
  }
  return { planned: done, integrations };
}

function ensure(
  db: Db,
  one: PlannedIntegration,
  { environmentId, reading }: Pick<PlanSettings, 'environmentId' | 'reading'>,
): Promise<Integration> {
  return db.transaction(async (tx) => {
    const found = await findIntegration(tx, { ...reading, environmentId, key: one.key });
    if (found !== undefined) return found;
    const provider = reading.catalog.get(one.provider ?? '');
    const takesClient = ['OAUTH2', 'OAUTH1', 'OAUTH2_CC'].includes(provider.auth_mode);
    const change = readSettings(
      {
        display_name: one.displayName?.slice(0, 255) || undefined,
        forward_webhooks: one.forwardsWebhooks,
        ...(provider.webhook?.proof.key === 'webhook_secret' && { webhook_secret: one.webhookSecret }),
        ...(one.client &&
          takesClient && {
            credentials: {
              type: provider.auth_mode === 'OAUTH1' ? 'OAUTH1' : 'OAUTH2',
              client_id: one.client.id,
              client_secret: one.client.secret,
              scopes: one.scopes?.join(','),
            },
          }),
      },
      { provider, reading, before: undefined },
    );
    const made = await createIntegration(tx, {
      ...reading,
      ...change,
      ...(one.scopes && { scopes: one.scopes }),
      environmentId,
      key: one.key,
      provider: provider.name,
    });
    await writeCommandAudit(tx, {
      environmentId,
      action: 'integration.created',
      target: made.key,
      details: { provider: provider.name, test: false, from: 'nango' },
    });
    return made;
  });
}
