/**
 * The data of a connect page before an authorization begins: the end user, the integrations, the scopes and fields.
 *
 * Does not own: the beginning (`begin.ts`, `form.ts`). Reading changes nothing: a mail scanner that opens the link
 * does not use it up.
 */
import { z } from 'zod';
import { authModes, modeNamed, ownClientOf } from '../auth-modes/modes.ts';
import type { Connection } from '../connections/store/store.ts';
import { nameSchemas } from '../http/openapi/schema-names.ts';
import { listIntegrations } from '../integrations/store.ts';
import type { FormField } from '../providers/definition.ts';
import { explainedScopeWire, explainScope } from '../providers/scopes.ts';
import { masked } from './save.ts';
import { exitAddress, fixedConfig } from './session-input.ts';
import type { Session } from './sessions.ts';
import { allowsOtherAccount, type ConnectDeps, getTarget, planScopes, type Target } from './target.ts';

const field = z.object({
  /** As the route takes it: `params[x]` in the query, all others in the body. */
  name: z.string(),
  /** Null: pages have a text for this name. */
  title: z.string().nullable(),
  description: z.string().nullable(),
  secret: z.boolean(),
  /** Whether the value may have several lines. */
  multiline: z.literal(true).optional(),
  /** Null: neither is marked. */
  required: z.boolean().nullable(),
  example: z.string().nullable(),
});
nameSchemas({ ConnectField: field });
const choiceWire = (modes: readonly string[]) =>
  z.object({
    unique_key: z.string(),
    display_name: z.string(),
    provider_display_name: z.string(),
    logo: z.string(),
    test: z.boolean(),
    auth_mode: z.enum(modes),
    /** The route that takes the fields; null: the connection begins at the provider. */
    form_path: z.string().nullable(),
    /** The application's own help. */
    docs_connect: z.string().nullable(),
    /** The expected account, if it is known. */
    account: z.object({ email: z.string(), rule: z.enum(['same', 'replaceable', 'end_user']) }).nullable(),
    /** The scopes to request. */
    scopes: z.array(explainedScopeWire),
    /** Whether they are added to a previous grant. */
    adds_scopes: z.boolean(),
    fields: z.array(field),
  });
/** With the modes at the time of the call. */
export const choicesWire = () =>
  z.object({
    environment: z.string(),
    reconnect: z.boolean(),
    end_user: z
      .object({
        name: z.string().nullable(),
        email: z.string().nullable(),
        organization: z.string().nullable(),
      })
      .nullable(),
    choices: z.array(choiceWire([...authModes.keys()]).meta({ title: 'ConnectChoice' })),
  });
type Choices = z.input<ReturnType<typeof choicesWire>>;
type Choice = Choices['choices'][number];
type Field = z.input<typeof field>;

/**
 * Throws the errors of `getTarget` if the session allows one integration only, so that a page can show at once why it
 * cannot be connected.
 */
export async function readChoices(
  { db, reading, baseUrl }: Pick<ConnectDeps, 'db' | 'reading' | 'baseUrl'>,
  session: Session,
): Promise<Choices> {
  const { environmentId, allowedIntegrations: keys } = session;
  const integrations = await listIntegrations(db, { ...reading, environmentId, keys });
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

/** The end user of the session, or else of the connection that it renews. */
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
  const { form } = modeNamed(provider.auth_mode);
  const { asked, requested } = form === undefined ? planScopes(target) : { asked: [], requested: [] };
  return {
    unique_key: key,
    display_name: integration.displayName,
    provider_display_name: provider.display_name,
    logo: `${logosUrl}/${provider.logo}`,
    test: integration.isTest,
    auth_mode: provider.auth_mode,
    form_path: form === undefined ? null : `${form.path}/${encodeURIComponent(key)}`,
    docs_connect: exitAddress(session.settings.overrides?.[key]?.docs_connect, baseUrl),
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

/** Fields that neither the application nor the connection has set, and that the end user may set. */
function configFields(target: Target): Field[] {
  const { session, integration, current } = target;
  const mode = modeNamed(integration.provider.auth_mode);
  if (mode.clientOpensAccounts && usesIntegrationClient(target)) return [];
  const known = {
    ...current?.connectionConfig,
    ...fixedConfig(session.settings.integrations_config_defaults?.[integration.key]),
  };
  return Object.entries(integration.provider.connection_config)
    .filter(([name]) => !Object.hasOwn(known, name))
    .map(([name, given]) => toField(`params[${name}]`, given));
}

/** A connection with a client of its own is renewed by a client of its own. */
function usesIntegrationClient({ integration, current }: Target): boolean {
  const hasOwnClient = current !== undefined && ownClientOf(current.credentials) !== undefined;
  return integration.client !== undefined && !hasOwnClient;
}

function credentialFields(target: Target): Field[] {
  const { provider } = target.integration;
  const { client, form } = modeNamed(provider.auth_mode);
  if (client === 'optional' && usesIntegrationClient(target)) return [];
  return Object.entries(form?.hasDefinedFields ? provider.credentials : (form?.fields ?? {}))
    .filter(([name, field]) => !('ifDeclared' in field) || Object.hasOwn(provider.credentials, name))
    .map(([name, field]) => toField(name, { ...field, ...provider.credentials[name] }));
}

function toField(name: string, given: Partial<FormField> & Pick<FormField, 'secret'>): Field {
  return {
    name,
    title: given.title ?? null,
    description: given.description || null,
    secret: given.secret,
    ...(given.multiline && { multiline: true }),
    required: given.required ?? null,
    example: given.example ?? null,
  };
}
