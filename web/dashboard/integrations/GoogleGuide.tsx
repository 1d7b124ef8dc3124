import {
  Alert,
  Anchor,
  Badge,
  Card,
  Code,
  Group,
  List,
  Stack,
  Table,
  Text,
  Timeline,
  Title,
} from '@mantine/core';
import { IconAlertTriangle } from '@tabler/icons-react';
import type { ReactNode } from 'react';
import { Copyable } from '../../ui/Copyable.tsx';
import { redirectUri } from './CredentialsCard.tsx';
import type { Provider, Scope } from './queries.ts';

/** How to get an OAuth client at Google for this very installation: six steps, in Google's order. */
export function GoogleGuide({ provider }: { provider: Provider }) {
  const api = provider.name === 'google-drive' ? 'Google Drive API' : 'Google Sheets API';
  const library = `https://console.cloud.google.com/apis/library/${
    provider.name === 'google-drive' ? 'drive' : 'sheets'
  }.googleapis.com`;
  const problem = whyNotAtGoogle(location);
  const steps: { title: string; body: ReactNode }[] = [
    {
      title: 'A Google Cloud account',
      body: (
        <>
          Sign in at <Out href="https://console.cloud.google.com/">console.cloud.google.com</Out> with an
          account that your company keeps, not one of a person who may leave.
        </>
      ),
    },
    {
      title: 'A project',
      body: 'Make one for this installation, in your organization where you have one: only then can the audience be "Internal".',
    },
    {
      title: `The ${api}`,
      body: (
        <>
          Enable it <Out href={library}>in the library</Out>. It takes some minutes to act; until then calls
          answer 403.
        </>
      ),
    },
    {
      title: 'The consent screen',
      body: (
        <Stack gap={6}>
          <span>
            Application name, support address, <b>audience</b>, contact, Google's data policy; then the
            scopes, and the test users where the audience asks for them.
          </span>
          <List size="sm" spacing={4}>
            <List.Item>
              <b>Internal</b>: your Workspace alone. No verification, grants do not end.
            </List.Item>
            <List.Item>
              <b>External, testing</b>: up to 100 users that you list. Grants end <b>after 7 days</b>.
            </List.Item>
            <List.Item>
              <b>External, in production</b>: anyone. A warning page and a cap of 100 users until Google has
              verified the application.
            </List.Item>
          </List>
          <Scopes scopes={provider.scopes ?? []} defaults={provider.default_scopes ?? []} />
        </Stack>
      ),
    },
    {
      title: 'An OAuth client of type Web application',
      body: (
        <Stack gap={6}>
          <span>With this redirect URI, exactly:</span>
          <Copyable value={redirectUri()} what="the redirect URI" />
          <span>Google shows the secret once. Copy it into the form before you close the page.</span>
        </Stack>
      ),
    },
    {
      title: 'The JavaScript origin',
      body: <Copyable value={location.origin} what="the JavaScript origin" />,
    },
  ];
  return (
    <Card>
      <Title order={2} mb="md">
        Set-up at Google
      </Title>
      {problem !== undefined && (
        <Alert
          color="orange"
          icon={<IconAlertTriangle size={18} />}
          title="Google will not take this address"
          mb="md"
        >
          {problem}
        </Alert>
      )}
      <Timeline bulletSize={26} lineWidth={2} active={-1}>
        {steps.map(({ title, body }, index) => (
          <Timeline.Item
            key={title}
            title={title}
            bullet={
              <Text size="xs" fw={600}>
                {index + 1}
              </Text>
            }
          >
            <Text size="sm" component="div" c="dimmed">
              {body}
            </Text>
          </Timeline.Item>
        ))}
      </Timeline>
      <Text size="sm" c="dimmed" mt="md">
        An account has at most 100 live grants with one client; the oldest ends silently. Sensitive scopes
        need Google's verification, restricted ones a yearly security assessment, too.
      </Text>
    </Card>
  );
}

function Scopes({ scopes, defaults }: { scopes: Scope[]; defaults: string[] }) {
  const colors: Record<string, string> = { sensitive: 'orange', restricted: 'red' };
  return (
    <Table layout="auto" verticalSpacing={6} horizontalSpacing={0}>
      <Table.Tbody>
        {scopes.map(({ scope, sensitivity, description }) => (
          <Table.Tr key={scope}>
            <Table.Td className="wrap">
              <Group gap={6}>
                <Code>{scope.replace('https://www.googleapis.com/auth/', '…/')}</Code>
                <Badge color={colors[sensitivity] ?? 'gray'}>{sensitivity.replace('_', ' ')}</Badge>
                {defaults.includes(scope) && <Badge>asked for</Badge>}
              </Group>
              <Text size="xs" c="dimmed" mt={2}>
                {description}
              </Text>
            </Table.Td>
          </Table.Tr>
        ))}
      </Table.Tbody>
    </Table>
  );
}

function Out({ href, children }: { href: string; children: ReactNode }) {
  return (
    <Anchor href={href} target="_blank" rel="noopener noreferrer" underline="always" inherit>
      {children}
    </Anchor>
  );
}

/** Google's rules for redirect URIs; undefined where the address fits them. */
export function whyNotAtGoogle({
  protocol,
  hostname,
}: {
  protocol: string;
  hostname: string;
}): string | undefined {
  const isLocal = hostname === 'localhost' || hostname === '127.0.0.1' || hostname === '[::1]';
  if (isLocal) return undefined;
  if (protocol !== 'https:')
    return 'It takes http for localhost alone. Put TLS in front, and set BASE_URL to the https address.';
  if (/^[\d.]+$|^\[/.test(hostname))
    return 'It takes no bare IP address. Give the service a host name, and set BASE_URL to it.';
  if (!hostname.includes('.') || /\.(local|internal|lan|test|localhost|home|corp)$/.test(hostname)) {
    return 'Its host has no public top-level domain. Set BASE_URL to a name below one; it need not be reachable from outside.';
  }
  return undefined;
}
