import { writeAudit } from '../../activity/audit.ts';
import type { Db } from '../../db/pool.ts';
import { AppError } from '../../errors.ts';
import { readSettings } from '../../integrations/settings-input.ts';
import {
  createIntegration,
  findIntegration,
  type Integration,
  type IntegrationReading,
} from '../../integrations/store.ts';
import { integrationKey, readScopes } from '../../integrations/wire.ts';
import type { ProviderDefinition } from '../../providers/definition.ts';
import {
  type PeerIntegration,
  peerIntegration,
  peerIntegrations,
  peerProvider,
  readAnswer,
  readPart,
} from './answers.ts';
import { type Peer, PeerError } from './client.ts';

/**
 * The peer's integrations, and what each comes to here: used where one of its ID is here and fits, made where none is, or
 * passed over with the reason, and with it its connections.
 */
export type PlannedIntegration = {
  key: string;
  peerProvider: string;
  /** What it is here; undefined where the catalogue has none that fits. */
  provider: string | undefined;
  plan: 'make' | 'use' | 'skip';
  /** Why it is passed over, or what is lacking, in a word; and what to do about it. */
  reason?: string;
  nextStep?: string;
  /** Whether a refresh ends the token that the other side holds: then the two must not both refresh. */
  rotates: boolean;
  client: { id: string; secret: string } | undefined;
  webhookSecret: string | undefined;
  scopes: string[] | undefined;
  forwardsWebhooks: boolean;
  displayName: string | undefined;
};

type PlanSettings = {
  environmentId: number;
  reading: IntegrationReading;
  /** Names of the peer's providers that are called otherwise here. */
  providerNames: ReadonlyMap<string, string>;
  /** IDs of integrations; all where absent. */
  only: ReadonlySet<string> | undefined;
};

/** Reads and compares; nothing is changed. Throws where an ID of `only` is not the peer's. */
export async function planIntegrations(
  db: Db,
  peer: Peer,
  settings: PlanSettings,
): Promise<PlannedIntegration[]> {
  const { data } = readAnswer(peerIntegrations, await peer.get('/integrations'), '/integrations');
  const missing = [...(settings.only ?? [])].filter(
    (key) => !data.some(({ unique_key }) => unique_key === key),
  );
  if (missing.length > 0) throw new Error(`--integrations: the peer has none called ${missing.join(', ')}.`);
  const modes = new Map<string, string | undefined>();
  const planned: PlannedIntegration[] = [];
  for (const one of data) {
    if (settings.only !== undefined && !settings.only.has(one.unique_key)) continue;
    if (!modes.has(one.provider)) modes.set(one.provider, await authModeOf(peer, one.provider));
    planned.push(await plan(db, peer, { one, mode: modes.get(one.provider), settings }));
  }
  return planned;
}

/** Undefined where the peer does not say. */
async function authModeOf(peer: Peer, provider: string): Promise<string | undefined> {
  try {
    const answer = await peer.get(`/providers/${encodeURIComponent(provider)}`);
    return peerProvider.safeParse(answer).data?.data.auth_mode ?? undefined;
  } catch (error) {
    if (error instanceof PeerError) return undefined;
    throw error;
  }
}

async function plan(
  db: Db,
  peer: Peer,
  { one, mode, settings }: { one: PeerIntegration; mode: string | undefined; settings: PlanSettings },
): Promise<PlannedIntegration> {
  const { reading, environmentId, providerNames } = settings;
  const { unique_key: key, provider: peerName } = one;
  const provider = providerNames.get(peerName) ?? peerName;
  const definition = reading.catalog.find(provider);
  const base = {
    key,
    peerProvider: peerName,
    provider: definition && provider,
    rotates: definition?.auth_mode === 'OAUTH2' && definition.refresh.rotates,
    client: undefined,
    webhookSecret: undefined,
    scopes: undefined,
    forwardsWebhooks: true,
    displayName: one.display_name ?? undefined,
  };
  const skip = (reason: string, nextStep: string): PlannedIntegration => ({
    ...base,
    plan: 'skip',
    reason,
    nextStep,
  });
  if (definition === undefined)
    return skip(
      'unknown_provider',
      `The catalogue here has no provider "${provider}". Write a definition of it (docs/providers.md), or name one that ` +
        `stands for it: --provider ${peerName}=NAME.`,
    );
  if (mode !== undefined && mode !== definition.auth_mode)
    return skip(
      'auth_mode_differs',
      `"${peerName}" is ${mode} there, and "${provider}" is ${definition.auth_mode} here: their credentials are not the same. ` +
        'Its users connect again.',
    );
  // IDs of dots alone mean another path (RFC 3986 §5.2.4), however they are escaped.
  if (!integrationKey.safeParse(key).success || key === '.' || key === '..')
    return skip('invalid_id', 'The ID holds a character that none here may have, or dots alone.');
  const said = await readDetails(peer, key).catch((error: unknown) => {
    if (error instanceof PeerError) return error;
    throw error;
  });
  if (said instanceof PeerError)
    return skip(said.code, `${said.message}. Run this again, or make it here by hand.`);
  const given = { ...base, ...said };
  const found = await findIntegration(db, { ...reading, environmentId, key });
  if (found === undefined) return judgeMissing(given, definition, said.isLent);
  return judgeFound(given, found, { provider, isLent: said.isLent });
}

async function readDetails(peer: Peer, key: string) {
  const path = `/integrations/${encodeURIComponent(key)}`;
  const answer = await peer.get(path, { include: 'credentials' }).catch(async (error: unknown) => {
    // A key may read integrations and not their secrets.
    if (error instanceof PeerError && error.status === 403) return peer.get(path);
    throw error;
  });
  const { data } = readPart(peerIntegration, answer, path);
  const {
    client_id: id,
    client_secret: secret,
    scopes,
    webhook_secret: webhookSecret,
  } = data.credentials ?? {};
  return {
    isLent: data.preconfigured_credentials,
    client: id && secret ? { id, secret } : undefined,
    webhookSecret: webhookSecret || undefined,
    scopes: readScopes(scopes ?? undefined),
    forwardsWebhooks: data.forward_webhooks ?? true,
  };
}

type Given = Omit<PlannedIntegration, 'plan'>;

const lentStep =
  'Its OAuth client belongs to the peer, so nobody else can renew these tokens. Register a client of your own at the ' +
  'provider; its users connect again.';

function judgeMissing(given: Given, definition: ProviderDefinition, isLent: boolean): PlannedIntegration {
  const { auth_mode: mode } = definition;
  if (mode === 'OAUTH2' && isLent)
    return { ...given, plan: 'skip', reason: 'client_is_the_peers', nextStep: lentStep };
  const required = Object.entries(definition.integration_config).flatMap(([name, field]) =>
    field.required ? [name] : [],
  );
  if (required.length > 0)
    return {
      ...given,
      plan: 'skip',
      reason: 'settings_missing',
      nextStep:
        `Make the integration "${given.key}" here first, with integration_config ${required.join(', ')}, ` +
        'which the peer does not tell; then run this again.',
    };
  if (mode === 'OAUTH2' && given.client === undefined)
    return {
      ...given,
      plan: 'make',
      reason: 'client_missing',
      nextStep:
        'The peer does not tell the client ID and secret. Fill them in here before the first token is renewed: ' +
        `PATCH /integrations/${encodeURIComponent(given.key)}.`,
    };
  return { ...given, plan: 'make' };
}

function judgeFound(
  given: Given,
  found: Integration,
  { provider, isLent }: { provider: string; isLent: boolean },
): PlannedIntegration {
  if (found.provider.name !== provider)
    return {
      ...given,
      plan: 'skip',
      reason: 'provider_differs',
      nextStep: `"${found.key}" is ${found.provider.name} here and ${provider} there. Give one of them another ID.`,
    };
  if (found.isTest)
    return {
      ...given,
      plan: 'skip',
      reason: 'is_test',
      nextStep: `"${found.key}" has test credentials here. Give it the client ID and secret of the peer's, then run this again.`,
    };
  if (found.provider.auth_mode !== 'OAUTH2') return { ...given, plan: 'use' };
  if (isLent) return { ...given, plan: 'skip', reason: 'client_is_the_peers', nextStep: lentStep };
  if (given.client !== undefined && found.client !== undefined && given.client.id !== found.client.clientId)
    return {
      ...given,
      plan: 'skip',
      reason: 'client_differs',
      nextStep:
        'The client ID here is another one than the peer has, and tokens are renewed by the client that got them alone. ' +
        'Give the integration here the client of the peer, or another ID.',
    };
  if (found.client === undefined)
    return {
      ...given,
      plan: 'use',
      reason: 'client_missing',
      nextStep: `Fill in the client ID and secret: PATCH /integrations/${encodeURIComponent(found.key)}.`,
    };
  return { ...given, plan: 'use' };
}

/**
 * The integrations of the plan as they stand here, made where they are missing, by ID. One that cannot be made turns into
 * one that is passed over.
 */
export async function makeIntegrations(
  db: Db,
  planned: readonly PlannedIntegration[],
  { environmentId, reading }: Pick<PlanSettings, 'environmentId' | 'reading'>,
): Promise<{ planned: PlannedIntegration[]; integrations: Map<string, Integration> }> {
  const integrations = new Map<string, Integration>();
  const done: PlannedIntegration[] = [];
  for (const one of planned) {
    if (one.plan === 'skip') {
      done.push(one);
      continue;
    }
    try {
      integrations.set(one.key, await ensure(db, one, { environmentId, reading }));
      done.push(one);
    } catch (error) {
      if (!(error instanceof AppError) || error.code === 'unavailable') throw error;
      const fields = error.errors?.map(({ path, message }) => `${path.join('.')}: ${message}`) ?? [];
      const nextStep = [error.message, ...fields, 'Make it here by hand, then run this again.'].join(' ');
      done.push({ ...one, plan: 'skip', reason: error.code, nextStep });
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
    const takesClient = provider.auth_mode === 'OAUTH2' || provider.auth_mode === 'OAUTH2_CC';
    const change = readSettings(
      {
        display_name: one.displayName?.slice(0, 255) || undefined,
        forward_webhooks: one.forwardsWebhooks,
        ...(provider.webhook?.proof.key === 'webhook_secret' && { webhook_secret: one.webhookSecret }),
        ...(one.client &&
          takesClient && {
            credentials: {
              type: 'OAUTH2',
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
    await writeAudit(tx, {
      environmentId,
      actor: 'command line',
      action: 'integration.created',
      target: made.key,
      details: { provider: provider.name, test: false, from: 'nango' },
    });
    return made;
  });
}
