import {
  Alert,
  Button,
  Card,
  Code,
  Group,
  List,
  NumberInput,
  SegmentedControl,
  Stack,
  Text,
  Title,
} from '@mantine/core';
import { useQuery } from '@tanstack/react-query';
import { useState } from 'react';
import { CopyButton } from '../../ui/CopyButton.tsx';
import { Dialog, DialogEnd } from '../../ui/Dialog.tsx';
import { Dimmed } from '../../ui/Dimmed.tsx';
import { EmptyState } from '../../ui/EmptyState.tsx';
import { IconEye, IconEyeOff, IconLock, IconRefresh } from '../../ui/icons.tsx';
import { Loaded } from '../../ui/Loaded.tsx';
import { RelativeTime } from '../../ui/RelativeTime.tsx';
import { settingsQuery } from '../settings/queries.ts';
import { useEnvironment } from '../shell/environment.ts';
import { useMay } from '../sign-in/queries.ts';
import { useChange } from '../use-change.ts';
import { rotateSigningKey, type SigningKey, signingKeyQuery } from './queries.ts';
import { snippets } from './snippets.ts';

/** The signing key: its value, its rotation, and code to verify a signature. */
export function SigningTab() {
  const environment = useEnvironment();
  const may = useMay();
  const query = useQuery({ ...signingKeyQuery(environment), enabled: may('keys') });
  return (
    <Stack gap="lg">
      {may('keys') ? (
        <Loaded query={query}>{(key) => <KeyCard signingKey={key} />}</Loaded>
      ) : (
        <Card>
          <EmptyState icon={<IconLock size={26} />} title="Viewers cannot see the signing key">
            A holder of the signing key can forge events of this service. Only developers of this environment
            see it.
          </EmptyState>
        </Card>
      )}
      <Snippets />
    </Stack>
  );
}

function KeyCard({ signingKey }: { signingKey: SigningKey }) {
  const environment = useEnvironment();
  const [isShown, setShown] = useState(false);
  const [rotates, setRotates] = useState(false);
  const { webhook_signing_key: secret, earlier } = signingKey;
  return (
    <Card>
      <Stack gap="sm">
        <Group justify="space-between" align="flex-start">
          <Stack gap={2} flex="1 1 260px">
            <Title order={2}>Signing key of {environment}</Title>
            <Dimmed>
              Created <RelativeTime at={signingKey.created_at} />. Store it with the secrets of your receiver.
            </Dimmed>
          </Stack>
          <Button variant="default" leftSection={<IconRefresh size={16} />} onClick={() => setRotates(true)}>
            Rotate
          </Button>
        </Group>
        <Group gap="xs" wrap="nowrap">
          <Code className={isShown ? 'wrap' : 'cut'} data-testid="signing-key">
            {isShown ? secret : `whsec_${'•'.repeat(24)}`}
          </Code>
          <Button
            variant="subtle"
            size="compact-sm"
            flex="none"
            leftSection={isShown ? <IconEyeOff size={16} /> : <IconEye size={16} />}
            onClick={() => setShown(!isShown)}
          >
            {isShown ? 'Hide' : 'Reveal'}
          </Button>
          <CopyButton value={secret} what="the signing key" />
        </Group>
        {earlier.length > 0 && (
          <Alert
            color="blue"
            title={earlier.length === 1 ? 'The previous key still signs' : 'Earlier keys still sign'}
          >
            <List size="sm">
              {earlier.map((one) => (
                <List.Item key={one.created_at}>
                  Created <RelativeTime at={one.created_at} />, expires <RelativeTime at={one.retires_at} />
                </List.Item>
              ))}
            </List>
          </Alert>
        )}
      </Stack>
      {rotates && <RotateDialog onClose={() => setRotates(false)} />}
    </Card>
  );
}

function RotateDialog({ onClose }: { onClose: () => void }) {
  const environment = useEnvironment();
  const { data: settings } = useQuery(settingsQuery(environment));
  const [given, setGiven] = useState<number | string>();
  const hours = Number(given ?? settings?.webhook_signing_key_overlap_hours ?? 24);
  const rotate = useChange(() => rotateSigningKey(environment, hours), {
    stale: [[environment, 'signing key']],
    after: onClose,
  });
  return (
    <Dialog opened onClose={onClose} title="Rotate the signing key">
      <Stack>
        <Text size="sm">
          A new key signs from now on. During the overlap, the previous key signs too: each request has a
          signature of both keys, and a receiver that verifies <code>webhook-signature</code> accepts either.
          Give the new key to your receivers during the overlap, and no event is lost.
        </Text>
        <NumberInput
          label="Overlap in hours"
          description="0 to 720. With 0 the previous key ends immediately: use it if the key has leaked."
          min={0}
          max={720}
          allowDecimal={false}
          value={given ?? settings?.webhook_signing_key_overlap_hours ?? 24}
          onChange={setGiven}
          data-autofocus
        />
        {hours === 0 && (
          <Alert color="orange">
            Receivers reject events until they have the new key. Rejected events are retried for three days.
          </Alert>
        )}
        <DialogEnd
          act="Rotate"
          attempt={rotate}
          button={{ disabled: given === '' }}
          onClose={onClose}
          onAct={() => rotate.mutate()}
        />
      </Stack>
    </Dialog>
  );
}

function Snippets() {
  const [language, setLanguage] = useState<string>(snippets[0].name);
  const chosen = snippets.find(({ name }) => name === language) ?? snippets[0];
  return (
    <Card>
      <Stack gap="sm">
        <Group justify="space-between" align="flex-start">
          <Stack gap={2} flex="1 1 260px">
            <Title order={2}>Verify a signature</Title>
            <Dimmed>
              Verify the raw bytes of the body, before parsing it. Reject requests with an old timestamp.
            </Dimmed>
          </Stack>
          <CopyButton value={chosen.code} what="the snippet" />
        </Group>
        <SegmentedControl
          aria-label="Language"
          value={chosen.name}
          onChange={setLanguage}
          data={snippets.map(({ name }) => name)}
          w="fit-content"
          maw="100%"
        />
        <Code block tabIndex={0}>
          {chosen.code}
        </Code>
        <Dimmed>{chosen.about}</Dimmed>
      </Stack>
    </Card>
  );
}
