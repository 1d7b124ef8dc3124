import { Box, Group, NativeSelect, Stack, Text } from '@mantine/core';
import { useLocalStorage } from '@mantine/hooks';
import { CodeBlock } from '../ui/CodeBlock.tsx';
import { Dimmed } from '../ui/Dimmed.tsx';
import {
  codeOf,
  connectionHeaders,
  keyVariable,
  languages,
  postCall,
  type ServiceCall,
} from './call-code.ts';
import { AnchorLink } from './links.tsx';
import { useEnvironment } from './shell/environment.ts';

/** A call as code, in the language that was last chosen on any page. */
export function Snippets({
  call,
  title,
  scopes,
  more = {},
}: {
  call: ServiceCall;
  title: string;
  /** One of them is needed. */
  scopes: string[];
  /** Code in place of the generated one, by the name of its language or package. */
  more?: Record<string, string>;
}) {
  const environment = useEnvironment();
  const [chosen, choose] = useLocalStorage<string>({
    key: 'trellis-language',
    defaultValue: 'curl',
    getInitialValueInEffect: false,
  });
  const names = [...languages, ...Object.keys(more)];
  const language = languages.find((one) => one === chosen) ?? 'curl';
  const code = more[chosen] ?? codeOf[language](call);
  return (
    <Stack gap="xs" ta="left" w="100%" miw={0}>
      <Group justify="space-between" gap="xs">
        <Text size="sm" fw={600}>
          {title}
        </Text>
        <NativeSelect
          size="xs"
          aria-label="Language"
          data={names}
          value={names.includes(chosen) ? chosen : language}
          onChange={({ currentTarget: { value } }) => choose(value)}
        />
      </Group>
      <Box miw={0}>
        <CodeBlock code={code} what="the code" />
      </Box>
      <Dimmed>
        <code>{keyVariable}</code> is a secret key of this environment with the scope {scopes.join(' or ')}.{' '}
        <AnchorLink
          inherit
          underline="always"
          to="/$environment/settings"
          params={{ environment }}
          search={{ tab: 'keys' }}
        >
          Create a key
        </AnchorLink>
      </Dimmed>
    </Stack>
  );
}

/** Reads the credentials of a connection. */
export function CredentialsSnippets({ at }: { at: { integration: string; id: string } }) {
  const query = new URLSearchParams({ integration_id: at.integration });
  const url = `${location.origin}/connections/${encodeURIComponent(at.id)}?${query}`;
  return (
    <Snippets
      title="Read the credentials"
      scopes={['connections:credentials']}
      call={{ method: 'GET', url, headers: [] }}
    />
  );
}

/** Saves a record for a connection. */
export function SaveSnippets({ at }: { at: { integration: string; id: string } }) {
  const body = { model: 'City', records: [{ id: '1', city: 'Oslo' }] };
  return (
    <Snippets
      title="Save a record"
      call={postCall('/records', body, connectionHeaders(at))}
      scopes={['records:write']}
    />
  );
}
