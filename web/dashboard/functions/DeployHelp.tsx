import { Box, Code, List, Stack, Text } from '@mantine/core';
import { CopyButton } from '../../ui/CopyButton.tsx';

const begin = 'trellis init ./functions';

/** How functions come here: no role of the dashboard deploys, since code that is deployed reads what it likes. */
export function DeployHelp({ environment }: { environment: string }) {
  return (
    <Stack gap="md" ta="left">
      <Text size="sm">
        A function is a TypeScript file of yours. It is deployed from the command line, with a key that may:
        nobody signed in here can change what code runs.
      </Text>
      <List type="ordered" spacing="md" size="sm" styles={{ itemWrapper: { display: 'block' } }}>
        <List.Item>
          Begin with a folder that has one of each kind, and change it:
          <Snippet text={begin} what="the command that makes a folder" />
          <Text size="sm" c="dimmed" mt={6} className="wrap">
            A file's place says what it is: <code>functions/google-sheet/syncs/rows.ts</code> is the sync{' '}
            <code>rows</code> of the integration <code>google-sheet</code>.
          </Text>
        </List.Item>
        <List.Item>
          Where the service runs, make a key that may deploy to {environment}:
          <Snippet
            text={`trellis key create --environment ${environment} --name deploy --scopes functions:deploy`}
            what="the command that makes a key"
          />
        </List.Item>
        <List.Item>
          Deploy, with that key:
          <Snippet
            text={`export TRELLIS_URL=${location.origin}\nexport TRELLIS_SECRET_KEY=…\ntrellis deploy ./functions`}
            what="the commands that deploy"
          />
        </List.Item>
      </List>
      <Text size="sm" c="dimmed">
        In development the folder <code>functions</code> where the service was started is deployed to{' '}
        <code>dev</code> as you save.
      </Text>
    </Stack>
  );
}

function Snippet({ text, what }: { text: string; what: string }) {
  return (
    <Box pos="relative" mt={6}>
      <Code block tabIndex={0} pr={44} className="broken" aria-label={what}>
        {text}
      </Code>
      <Box pos="absolute" top={4} right={6}>
        <CopyButton value={text} what={what} />
      </Box>
    </Box>
  );
}
