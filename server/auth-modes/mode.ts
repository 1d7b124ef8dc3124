/**
 * The interface of an auth mode: what a connection's credentials are, how an end user enters them, how they are
 * imported, shown, put on a request and renewed.
 *
 * A mode is one file that implements `AuthMode`, and one line in the list of `modes.ts`. The routes, the OpenAPI
 * document, the connect page and the dashboard derive from its object; `node scripts/api-types.ts` then writes the types
 * of its route. The modes own the protocols, but not the tables and leases of `connections/`, the sessions of `connect/`
 * and the calls of `proxy/`.
 */
import type { z } from 'zod';
import type { FieldError } from '../errors.ts';
import type { AuthModeRules, FormField, ProviderDefinition } from '../providers/definition.ts';
import type { TemplateValues } from '../providers/template.ts';
import type { Network, OAuthClient, OAuthContext, TokenOutcome, Tokens } from './oauth2-request.ts';
import type { TokenFault } from './token-fault.ts';

export type AuthMode<C extends { readonly type: string }> = AuthModeRules & {
  readonly name: C['type'];
  /** The form by which an end user connects. A mode has this or `authorization`. */
  readonly form?: ConnectForm;
  /** How an end user agrees on the provider's own pages. */
  readonly authorization?: Authorization<C>;
  /** What `POST /connections` takes as `credentials`, and the form with `type`; its output is sealed and stored. */
  readonly importSchema: z.ZodType<C>;
  /** What the definition refuses about credentials that fit `importSchema`. */
  credentialFaults?(credentials: C, definition: ProviderDefinition): readonly Omit<FieldError, 'code'>[];
  /** What is wrong with the secret of an integration's client; undefined: nothing. */
  clientSecretFault?(clientSecret: string, definition: ProviderDefinition): string | undefined;
  /**
   * Whether the integration's client opens the account that the configuration of a connection names. Then the
   * application chooses the configuration, since an end user could name the account of another.
   */
  readonly clientOpensAccounts?: true;
  /** The values of `placeholders`. */
  templateValues(credentials: C): Record<string, string>;
  /** For credentials that sign each request instead of being placed on it. Throws TemplateError. */
  signer?(
    credentials: C,
    context: {
      definition: ProviderDefinition;
      values: Omit<TemplateValues, 'credentials'>;
      /** The integration's OAuth client, if it has one. */
      client: Pick<OAuthClient, 'clientId' | 'clientSecret'> | undefined;
    },
  ): Signer;
  /** The private key and the certificate, in PEM, of the TLS connections to the provider; undefined: none. */
  certificateOf?(credentials: C): string | undefined;
  /** Where a request carries the credentials if the definition has no placement. */
  readonly placement: ProviderDefinition['placement'];
  /** As `GET /connections/{id}` shows them, without the secrets that renew them. */
  toWire(credentials: C): Record<string, unknown>;
  /** Absent if the credentials do not expire. */
  readonly renewal?: Renewal<C>;
};

/** Signs the requests of one connection. Each attempt is signed when it is sent. */
export type Signer = {
  /**
   * Whether a signature covers the body of a request with these headers, names and values in turn. The body must then be
   * read whole.
   */
  coversBody(headers: readonly string[]): boolean;
  /**
   * The headers with the signature, in lower case; they replace those of the request with the same names. `headers` are
   * names and values in turn; `body` is undefined for a body that is streamed. Throws `invalid_body` if it must be whole,
   * and `invalid_body` or `invalid_proxy_path` for parameters that belong to the signature.
   */
  sign(request: {
    method: string;
    url: string;
    headers: readonly string[];
    body: Buffer | undefined;
  }): Promise<Record<string, string>>;
};

/** The secrets of an authorization, which are kept sealed until the browser returns. */
export type Kept = {
  /** Of PKCE (RFC 7636 §4.1). */
  readonly codeVerifier?: string | undefined;
  /** The temporary credentials (RFC 5849 §2.1). */
  readonly requestToken?: { readonly token: string; readonly secret: string } | undefined;
};

/**
 * An authorization on the provider's own pages. `begin` and `finish` throw TemplateError, and AppError when an address may
 * not be reached.
 */
type Authorization<C> = {
  /** The address to which the browser is sent, and what its return is checked with. `extraParams` come from the browser. */
  begin(
    context: OAuthContext & Network & { redirectUri: string; extraParams?: Readonly<Record<string, string>> },
  ): Promise<
    | { readonly ok: true; readonly url: string; readonly state: string; readonly kept: Kept }
    | { readonly ok: false; readonly fault: TokenFault }
  >;
  /** Checks a callback before any request, then exchanges what it brings for tokens. */
  finish(
    context: OAuthContext &
      Network & { callbackParams: URLSearchParams; redirectUri: string; expectedState: string; kept: Kept },
  ): Promise<TokenOutcome>;
  /** The credentials to store. `refreshToken` is that of the same account and client, kept until there is a new one. */
  credentials(
    tokens: Tokens,
    of: {
      refreshToken?: string | undefined;
      /** The connection's own OAuth client; undefined: the integration's. */
      ownClient: Pick<OAuthClient, 'clientId' | 'clientSecret'> | undefined;
    },
  ): C;
};

/** A mode whose credentials hold a token that expires or can end. */
export type RenewableMode<C extends { readonly type: string }> = AuthMode<C> & {
  readonly renewal: Renewal<C>;
};

/** The form of a connect page, and the route that takes it: `POST {path}/{integration}`. */
type ConnectForm = {
  readonly path: string;
  readonly operationId: string;
  readonly summary: string;
  /** An example of the body, if the examples of the single fields do not fit. */
  readonly example?: Readonly<Record<string, string>>;
  /**
   * By the name in the body, which is also that in `importSchema`. The form fields of the provider's definition add to
   * them. If the integration may have an OAuth client instead, the body may omit all of them.
   */
  readonly fields: Readonly<Record<string, ModeField>>;
  /** The fields are those that the definition declares under `credentials`. */
  readonly hasDefinedFields?: true;
};

type ModeField = Partial<FormField> &
  Pick<FormField, 'secret'> & {
    /** A page has the field only if the provider's definition declares it under `credentials`. */
    readonly ifDeclared?: true;
  };

/** How a token that expires is replaced. */
export type Renewal<C> = {
  /**
   * The OAuth grant that replaces a token: RFC 6749 §6 or §4.4. `own_credentials`: a request with the connection's
   * credentials, without an OAuth client. `none`: the token stays, and the call that verifies credentials decides whether
   * it is still valid.
   */
  readonly grantType: 'refresh_token' | 'client_credentials' | 'own_credentials' | 'none';
  /** The token for the API; undefined before the first one is fetched. */
  accessTokenOf(credentials: C): string | undefined;
  /**
   * The secret that a request for another token sends, and that is not sent again after a refusal: a refresh token, or
   * the ID of a client that needs none. Undefined if there is none.
   */
  secretOf(credentials: C): string | undefined;
  /** The connection's own OAuth client; undefined if it uses the integration's. */
  ownClientOf(credentials: C): Omit<OAuthClient, 'scopes'> | undefined;
  /** Requests another token, or makes one. Throws TemplateError, and AppError when the address may not be reached. */
  request(context: OAuthContext & Network & { credentials: C; secret: string }): Promise<TokenOutcome>;
  /** The credentials to store after a request with `secret` has returned these tokens. */
  after(tokens: Tokens, from: { previous: C; secret: string }): C;
  /** As `toWire`, with the secrets that renew them: only for a caller with the scope for them. */
  toWireWithSecret(credentials: C): Record<string, unknown>;
};
