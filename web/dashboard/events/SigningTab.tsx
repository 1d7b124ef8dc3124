import {
  Alert,
  Button,
  Card,
  Code,
  Group,
  List,
  Modal,
  NumberInput,
  SegmentedControl,
  Stack,
  Text,
  Title,
} from '@mantine/core';
import { IconEye, IconEyeOff, IconLock, IconRefresh } from '@tabler/icons-react';
import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { CopyButton } from '../../ui/CopyButton.tsx';
import { EmptyState } from '../../ui/EmptyState.tsx';
import { FaultNotice } from '../../ui/FaultNotice.tsx';
import { Loaded } from '../../ui/Loaded.tsx';
import { RelativeTime } from '../../ui/RelativeTime.tsx';
import { settingsQuery } from '../settings/queries.ts';
import { useEnvironment } from '../shell/environment.ts';
import { useMay } from '../sign-in/queries.ts';
import { rotateSigningKey, type SigningKey, signingKeyQuery } from './queries.ts';
import { snippets } from './snippets.ts';

/** What events are signed with: to verify them, and to change it over without losing one. */
export function SigningTab() {
  const environment = useEnvironment();
  const may = useMay();
  const query = useQuery({ ...signingKeyQuery(environment), enabled: may('keys') });
  return (
    <Stack gap="lg">
      {may('keys') ? (
        <Loaded query={query}>{(key) => <KeyCard environment={environment} signingKey={key} />}</Loaded>
      ) : (
        <Card>
          <EmptyState icon={<IconLock size={26} />} title="Not for viewers">
            A holder of the signing key can forge events of this service. Developers of this environment see
            the key.
          </EmptyState>
        </Card>
      )}
      <Snippets />
    </Stack>
  );
}

function KeyCard({ environment, signingKey }: { environment: string; signingKey: SigningKey }) {
  const [isShown, setShown] = useState(false);
  const [rotates, setRotates] = useState(false);
  const { webhook_signing_key: secret, earlier } = signingKey;
  return (
    <Card>
      <Stack gap="sm">
        <Group justify="space-between" align="flex-start">
          <Stack gap={2} flex="1 1 260px">
            <Title order={2}>Signing key of {environment}</Title>
            <Text size="sm" c="dimmed">
              Made <RelativeTime at={signingKey.created_at} />. Keep it where your receiver keeps its secrets.
            </Text>
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
            title={earlier.length === 1 ? 'The key before still signs' : 'Earlier keys still sign'}
          >
            <List size="sm">
              {earlier.map((one) => (
                <List.Item key={one.created_at}>
                  Made <RelativeTime at={one.created_at} />, ends <RelativeTime at={one.retires_at} />
                </List.Item>
              ))}
            </List>
          </Alert>
        )}
      </Stack>
      {rotates && <RotateDialog environment={environment} onClose={() => setRotates(false)} />}
    </Card>
  );
}

function RotateDialog({ environment, onClose }: { environment: string; onClose: () => void }) {
  const queries = useQueryClient();
  const { data: settings } = useQuery(settingsQuery(environment));
  const [given, setGiven] = useState<number | string>();
  const hours = Number(given ?? settings?.webhook_signing_key_overlap_hours ?? 24);
  const rotate = useMutation({
    mutationFn: () => rotateSigningKey(environment, hours),
    onSuccess: async () => {
      await queries.invalidateQueries({ queryKey: [environment, 'signing key'] });
      onClose();
    },
  });
  return (
    <Modal
      opened
      onClose={onClose}
      title="Rotate the signing key"
      closeButtonProps={{ 'aria-label': 'Close' }}
    >
      <Stack>
        <Text size="sm">
          A new key signs from now on. For the overlap the one before signs beside it: each request then
          carries a signature of both, and a receiver that verifies <code>webhook-signature</code> takes
          either. Change your receivers over in that time, and nothing is lost.
        </Text>
        <NumberInput
          label="Overlap in hours"
          description="0 to 720. With 0 the old key ends at once: for one that has leaked."
          min={0}
          max={720}
          allowDecimal={false}
          value={given ?? settings?.webhook_signing_key_overlap_hours ?? 24}
          onChange={setGiven}
          data-autofocus
        />
        {hours === 0 && (
          <Alert color="orange">
            Receivers refuse what they get until they have the new key. What they refuse is repeated for three
            days.
          </Alert>
        )}
        {rotate.isError && <FaultNotice error={rotate.error} />}
        <Group justify="flex-end">
          <Button variant="default" onClick={onClose}>
            Cancel
          </Button>
          <Button loading={rotate.isPending} disabled={given === ''} onClick={() => rotate.mutate()}>
            Rotate
          </Button>
        </Group>
      </Stack>
    </Modal>
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
            <Text size="sm" c="dimmed">
              Over the bytes as they came, before anything parses them. Refuse timestamps that are minutes
              old.
            </Text>
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
        <Text size="sm" c="dimmed">
          {chosen.about}
        </Text>
      </Stack>
    </Card>
  );
}
