import { Alert, Anchor, Badge, Code, Group, List, Stack, Text } from '@mantine/core';
import type { ReactNode } from 'react';
import { adviceAtGoogle, whyNotAtGoogle } from '../../../server/providers/google-address.ts';
import { Copyable } from '../../ui/Copyable.tsx';
import { CopyButton } from '../../ui/CopyButton.tsx';
import { IconAlertTriangle, IconInfoCircle } from '../../ui/icons.tsx';
import { Steps } from '../../ui/Steps.tsx';
import { installationOf, type Provider } from './queries.ts';

const library = 'https://console.cloud.google.com/apis/library';

/** The six steps, in the order of Google's console. */
export function GoogleSteps({ provider }: { provider: Provider }) {
  const installation = installationOf(provider.logo_url);
  const steps: { title: string; body: ReactNode }[] = [
    {
      title: 'A Google Cloud account',
      body: (
        <>
          Sign in at <Out href="https://console.cloud.google.com/">console.cloud.google.com</Out> with an
          account that belongs to your company, not to one person.
        </>
      ),
    },
    {
      title: 'A project',
      body: (
        <>
          <Out href="https://console.cloud.google.com/projectcreate">Create a project</Out> for this
          installation, in your organization if you have one: only then can the audience be "Internal".
          Production and staging each need a project, because limits and revocations apply to a project.
        </>
      ),
    },
    {
      title: `The ${provider.display_name} API`,
      body: (
        <>
          Enable it <Out href={libraryOf(provider)}>in the library</Out>. This can take a few minutes. Until
          then, calls fail with 403.
        </>
      ),
    },
    { title: 'The consent screen', body: <ConsentScreen provider={provider} /> },
    {
      title: 'An OAuth client of type Web application',
      body: (
        <Stack gap={6}>
          <span>
            <Out href="https://console.cloud.google.com/auth/clients/create">Create a client</Out>, type{' '}
            <b>Web application</b>, with this authorized redirect URI, exactly:
          </span>
          <Copyable value={provider.redirect_uri ?? ''} what="the redirect URI for Google" />
          <span>Google shows the secret once. Copy it into the form before you close the page.</span>
        </Stack>
      ),
    },
    {
      title: 'The JavaScript origin',
      body: (
        <Stack gap={6}>
          <span>In the same client, as an authorized JavaScript origin:</span>
          <Copyable value={installation.origin} what="the JavaScript origin" />
          <span>It may take five minutes until Google accepts a new address.</span>
        </Stack>
      ),
    },
  ];
  return (
    <>
      <AddressNotice
        baseUrl={provider.redirect_uri?.replace(/\/oauth\/callback$/, '') ?? installation.baseUrl}
      />
      <Steps steps={steps} />
    </>
  );
}

function AddressNotice({ baseUrl }: { baseUrl: string }) {
  const problem = whyNotAtGoogle(baseUrl);
  const advice = adviceAtGoogle(baseUrl);
  if (problem !== undefined) {
    return (
      <Alert
        color="orange"
        icon={<IconAlertTriangle size={18} />}
        title={`Google will not take ${baseUrl}`}
        mb="md"
      >
        {problem}
      </Alert>
    );
  }
  if (advice === undefined) return null;
  return (
    <Alert icon={<IconInfoCircle size={18} />} title={`Your base URL is ${baseUrl}`} mb="md">
      {advice}
    </Alert>
  );
}

function ConsentScreen({ provider }: { provider: Provider }) {
  return (
    <Stack gap={8}>
      <span>
        <Out href="https://console.cloud.google.com/auth/overview">Google Auth Platform</Out> asks in this
        order:
      </span>
      <List size="sm" spacing={6}>
        <List.Item>
          <b>App information</b>: the name that your users will read, and an address for their questions.
        </List.Item>
        <List.Item>
          <b>Audience</b>
          <List size="sm" spacing={4} listStyleType="disc" mt={4}>
            <List.Item>
              <i>Internal</i>: only users of your Workspace. No verification, and grants do not expire.
            </List.Item>
            <List.Item>
              <i>External, in testing</i>: only the users that you list, up to 100. Grants expire{' '}
              <b>after 7 days</b>.
            </List.Item>
            <List.Item>
              <i>External, in production</i>: any user. Until Google has verified the application, its users
              see a warning page, and only 100 can connect.
            </List.Item>
          </List>
        </List.Item>
        <List.Item>
          <b>Contact</b>: where Google writes to you. Use a list that several people read.
        </List.Item>
        <List.Item>
          <b>Data policy</b>: agree to Google's user data policy.
        </List.Item>
        <List.Item>
          <b>Scopes</b>, under Data access.
          <GoogleScopes provider={provider} />
        </List.Item>
        <List.Item>
          <b>Test users</b>, under Audience, while it is in testing: everyone who will connect, including you.
        </List.Item>
        <List.Item>
          <b>Verification</b>, before strangers connect: for sensitive and restricted scopes, under
          Verification center. Start early.
        </List.Item>
      </List>
      <span>
        An account can have at most <b>100 grants</b> for one client. Each new connection adds one, and Google
        then revokes the oldest without notice: reconnect an account instead of connecting it again.
      </span>
    </Stack>
  );
}

function libraryOf({ name, display_name }: Provider): string {
  if (name === 'google-sheet') return `${library}/sheets.googleapis.com`;
  if (name === 'google-drive') return `${library}/drive.googleapis.com`;
  return `${library}/browse?q=${encodeURIComponent(display_name)}`;
}

function Out({ href, children }: { href: string; children: ReactNode }) {
  return (
    <Anchor href={href} target="_blank" rel="noopener noreferrer" underline="always" inherit>
      {children}
    </Anchor>
  );
}

const colors: Record<string, string> = { sensitive: 'orange', restricted: 'red' };
const meanings: Record<string, string> = {
  sensitive: 'Google verifies the application, about a week.',
  restricted: 'Google verifies it, and an assessor checks its security each year.',
};

/** The scopes of a provider with Google's classification, and the requested ones to copy. */
function GoogleScopes({ provider }: { provider: Provider }) {
  const { scopes = [], default_scopes: requested = [] } = provider;
  const classes = [...new Set(scopes.map(({ sensitivity }) => sensitivity))].filter((one) => one in meanings);
  return (
    <Stack gap={8}>
      <Group gap={4} justify="space-between">
        <span>Add the scopes that you ask for:</span>
        <CopyButton value={requested.map(fullName).join('\n')} what="all default scopes" />
      </Group>
      {scopes.map(({ scope, sensitivity, description }) => (
        <Stack key={scope} gap={2}>
          <Group gap={6}>
            <Badge color={colors[sensitivity] ?? 'gray'}>{sensitivity.replaceAll('_', ' ')}</Badge>
            {requested.includes(scope) && <Badge>Default</Badge>}
          </Group>
          {requested.includes(scope) ? (
            <Copyable value={fullName(scope)} what={`the scope ${scope}`} />
          ) : (
            <Code className="wrap">{scope}</Code>
          )}
          <Text size="xs">{description}</Text>
        </Stack>
      ))}
      {classes.map((one) => (
        <Text key={one} size="sm">
          <b>{one.charAt(0).toUpperCase() + one.slice(1)}</b>: {meanings[one]}
        </Text>
      ))}
    </Stack>
  );
}

/** Google's console lists `email` and `profile` only by their URLs. */
function fullName(scope: string): string {
  return scope === 'email' || scope === 'profile'
    ? `https://www.googleapis.com/auth/userinfo.${scope}`
    : scope;
}
