import { z } from 'zod';
import { ownClientOf } from '../auth-modes/mode.ts';
import type { Connection } from '../connections/store.ts';
import { findIntegration, type Integration, listIntegrations } from '../integrations/store.ts';
import type { FormField } from '../providers/definition.ts';
import { explainedScopeWire, explainScope } from '../providers/scopes.ts';
import { wayOut } from './own-pages.ts';
import { masked } from './save.ts';
import { allowsOtherAccount, planScopes } from './scopes.ts';
import { fixedConfig } from './session-input.ts';
import type { Session } from './sessions.ts';
import { type ConnectDeps, getTarget, type Target } from './target.ts';

/**
 * What a connect page shows before anything begins: whom it is for, what may be connected, what will be asked.
 *
 * Does not own: what beginning does (`begin.ts`, `submit.ts`). Reading it changes nothing: a mail scanner that opens
 * the link takes nothing from the person it was sent to.
 */
const field = z.object({
  /** As the route takes it: `params[x]` in the query, all else in the body. */
  name: z.string(),
  /** Null: a word that pages know by the name. */
  title: z.string().nullable(),
  description: z.string().nullable(),
  secret: z.boolean(),
  /** Null: nothing is said about it. */
  required: z.boolean().nullable(),
  example: z.string().nullable(),
});
const choice = z.object({
  unique_key: z.string(),
  display_name: z.string(),
  provider_display_name: z.string(),
  logo: z.string(),
  test: z.boolean(),
  auth_mode: z.enum(['OAUTH2', 'OAUTH2_CC', 'API_KEY', 'BASIC', 'NONE']),
  /** The application's own help. */
  docs_connect: z.string().nullable(),
  /** The account that is expected, as far as it is known. */
  account: z.object({ email: z.string(), rule: z.enum(['same', 'replaceable', 'end_user']) }).nullable(),
  /** What the provider will ask for. */
  scopes: z.array(explainedScopeWire),
  /** Whether that is beside what was granted before. */
  adds_scopes: z.boolean(),
  fields: z.array(field),
});
export const choicesWire = z.object({
  environment: z.string(),
  reconnect: z.boolean(),
  end_user: z
    .object({
      name: z.string().nullable(),
      email: z.string().nullable(),
      organization: z.string().nullable(),
    })
    .nullable(),
  choices: z.array(choice),
});
type Choices = z.input<typeof choicesWire>;
type Choice = Choices['choices'][number];
type Field = z.input<typeof field>;

/**
 * Throws what `getTarget` throws where the session leaves nothing to choose, so that a page can say at once why
 * nothing can be connected.
 */
export async function readChoices(
  { db, reading, baseUrl }: Pick<ConnectDeps, 'db' | 'reading' | 'baseUrl'>,
  session: Session,
): Promise<Choices> {
  const integrations = await allowedTo(session, { db, reading });
  const [only, ...others] = integrations;
  const targets: Target[] =
    only !== undefined && others.length === 0
      ? [await getTarget(db, { reading, session, key: only.key })]
      : integrations.map((integration) => ({ session, integration, current: undefined }));
  const logosUrl = `${new URL(baseUrl).pathname.replace(/\/$/, '')}/providers/logos`;
  return {
    environment: session.environment,
    reconnect: session.settings.reconnect !== undefined,
    end_user: endUserOf(session, targets[0]?.current),
    choices: targets.map((target) => toChoice(target, { logosUrl, baseUrl })),
  };
}

async function allowedTo(
  { environmentId, allowedIntegrations: keys }: Session,
  { db, reading }: Pick<ConnectDeps, 'db' | 'reading'>,
): Promise<Integration[]> {
  const [only, ...others] = keys ?? [];
  if (only !== undefined && others.length === 0) {
    const found = await findIntegration(db, { ...reading, environmentId, key: only });
    return found === undefined ? [] : [found];
  }
  const all = await listIntegrations(db, { environmentId, ...reading });
  return keys === undefined ? all : all.filter(({ key }) => keys.includes(key));
}

/** The user that the session names, or the one of the connection that is renewed. */
export function endUserOf({ settings }: Session, current: Connection | undefined): Choices['end_user'] {
  const endUser = settings.end_user ?? current?.endUser;
  if (!endUser) return null;
  return {
    name: endUser.display_name || endUser.email || endUser.id || null,
    email: endUser.email ?? null,
    organization: endUser.organization?.display_name ?? null,
  };
}

function toChoice(target: Target, { logosUrl, baseUrl }: { logosUrl: string; baseUrl: string }): Choice {
  const { session, integration } = target;
  const { provider, key } = integration;
  const isOAuth = provider.auth_mode === 'OAUTH2';
  const { asked, requested } = isOAuth ? planScopes(target) : { asked: [], requested: [] };
  return {
    unique_key: key,
    display_name: integration.displayName,
    provider_display_name: provider.display_name,
    logo: `${logosUrl}/${provider.logo}`,
    test: integration.isTest,
    auth_mode: provider.auth_mode,
    docs_connect: wayOut(session.settings.overrides?.[key]?.docs_connect, baseUrl),
    account: expectedAccount(target),
    scopes: asked.map((scope) => explainScope(provider, scope)),
    adds_scopes: asked.length < requested.length,
    fields: [...configFields(target), ...credentialFields(target)],
  };
}

/** The expected account. The address of a connected account is masked, so that only its owner recognizes it. */
function expectedAccount(target: Target): Choice['account'] {
  const { require_same_account: isFixed, end_user: endUser } = target.session.settings;
  const before = target.current?.account?.email;
  if (before !== undefined)
    return { email: masked(before), rule: allowsOtherAccount(target) ? 'replaceable' : 'same' };
  return isFixed && endUser?.email ? { email: endUser.email, rule: 'end_user' } : null;
}

/** Fields that neither the application fixed nor the connection has. */
function configFields({ session, integration, current }: Target): Field[] {
  const known = {
    ...current?.connectionConfig,
    ...fixedConfig(session.settings.integrations_config_defaults?.[integration.key]),
  };
  return Object.entries(integration.provider.connection_config)
    .filter(([name]) => !Object.hasOwn(known, name))
    .map(([name, given]) => toField(`params[${name}]`, given));
}

const plainFields = {
  API_KEY: { apiKey: { secret: true } },
  BASIC: { username: { secret: false }, password: { secret: true } },
  OAUTH2_CC: { client_id: { secret: false }, client_secret: { secret: true } },
} as const;

function credentialFields({ integration, current }: Target): Field[] {
  const { provider, client } = integration;
  const mode = provider.auth_mode;
  if (mode === 'OAUTH2' || mode === 'NONE') return [];
  // A connection that brought its own client is renewed by one of its own.
  const hasOwnClient = current !== undefined && ownClientOf(current.credentials) !== undefined;
  if (mode === 'OAUTH2_CC' && client !== undefined && !hasOwnClient) return [];
  return Object.entries(plainFields[mode]).map(([name, plain]) =>
    toField(name, { ...plain, ...(mode !== 'BASIC' && { required: true }), ...provider.credentials[name] }),
  );
}

function toField(name: string, given: Partial<FormField> & Pick<FormField, 'secret'>): Field {
  return {
    name,
    title: given.title ?? null,
    description: given.description || null,
    secret: given.secret,
    required: given.required ?? null,
    example: given.example ?? null,
  };
}
