import {
  Alert,
  Box,
  Button,
  Card,
  ColorInput,
  FileButton,
  Group,
  SegmentedControl,
  Select,
  SimpleGrid,
  Stack,
  Text,
  TextInput,
  Title,
} from '@mantine/core';
import { useForm } from '@mantine/form';
import { notifications } from '@mantine/notifications';
import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { wordsOn } from '../../ui/contrast.ts';
import { Dimmed } from '../../ui/Dimmed.tsx';
import { FaultNotice } from '../../ui/FaultNotice.tsx';
import { IconUpload } from '../../ui/icons.tsx';
import { Loaded } from '../../ui/Loaded.tsx';
import { LoadingRows } from '../../ui/Loading.tsx';
import { SaveBar } from '../../ui/SaveBar.tsx';
import { useEnvironment } from '../shell/environment.ts';
import { useMay } from '../sign-in/queries.ts';
import { type ConnectSettings, changeConnectPage, type Settings, settingsQuery } from './queries.ts';

const maxLogoBytes = 64 * 1024;
const languages = [
  { value: 'en', label: 'English' },
  { value: 'de', label: 'Deutsch' },
  { value: 'fr', label: 'Français' },
  { value: 'es', label: 'Español' },
  { value: 'ja', label: '日本語' },
];

/** The brand of the connect page. */
export function ConnectPageTab() {
  const environment = useEnvironment();
  const query = useQuery(settingsQuery(environment));
  return (
    <Loaded query={query} loading={<LoadingRows rows={1} height={480} />}>
      {(settings) => <ConnectPageForm key={environment} settings={settings} />}
    </Loaded>
  );
}

export type Look = {
  appName: string;
  logo: string | null;
  theme: ConnectSettings['theme'];
  light: string;
  dark: string;
  language: string | null;
};

function ConnectPageForm({ settings }: { settings: Settings }) {
  const environment = useEnvironment();
  const isAllowed = useMay()('environment:write');
  const queries = useQueryClient();
  const isColor = (given: string) =>
    /^#[0-9a-f]{6}$/i.test(given) ? null : 'Enter a color such as #2454d6.';
  const form = useForm<Look>({
    initialValues: lookOf(settings.connect),
    validate: { light: isColor, dark: isColor },
  });
  const save = useMutation({
    // Unchanged fields are not sent, because another user may have changed them.
    mutationFn: ({ appName, logo, theme, light, dark, language }: Look) =>
      changeConnectPage(environment, {
        ...(form.isDirty('appName') && { app_name: appName.trim() === '' ? null : appName.trim() }),
        ...(form.isDirty('logo') && { logo }),
        ...(form.isDirty('theme') && { theme }),
        colors: {
          ...(form.isDirty('light') && { light: { primary: light.toLowerCase() } }),
          ...(form.isDirty('dark') && { dark: { primary: dark.toLowerCase() } }),
        },
        ...(form.isDirty('language') && { language: language as ConnectSettings['language'] }),
      }),
    onSuccess: (changed) => {
      queries.setQueryData(settingsQuery(environment).queryKey, changed);
      form.setInitialValues(lookOf(changed.connect));
      form.reset();
      notifications.show({ message: 'Saved. New connect pages use this brand.', color: 'green' });
    },
  });
  async function takeLogo(file: File | null): Promise<void> {
    if (file === null) return;
    if (file.size > maxLogoBytes) {
      form.setFieldError('logo', 'At most 64 KB');
      return;
    }
    form.setFieldValue('logo', await dataAddressOf(file));
  }
  const { connect_warnings: warnings } = settings;
  return (
    <SimpleGrid cols={{ base: 1, md: 2 }} spacing="lg">
      <Card>
        <form onSubmit={form.onSubmit((values) => save.mutate(values))}>
          <Stack>
            <Stack gap={2}>
              <Title order={2}>Brand</Title>
              <Dimmed>The connect page for your users in {environment}.</Dimmed>
            </Stack>
            <TextInput
              label="Name of your application"
              placeholder="the application"
              maxLength={80}
              disabled={!isAllowed}
              {...form.getInputProps('appName')}
            />
            <Stack gap={6}>
              <Text size="sm" fw={500}>
                Logo
              </Text>
              <Group gap="sm">
                {form.values.logo !== null && (
                  <img src={form.values.logo} alt="Your logo" height={40} className="picked-logo" />
                )}
                {isAllowed && (
                  <FileButton onChange={takeLogo} accept="image/png,image/jpeg,image/webp,image/svg+xml">
                    {(props) => (
                      <Button variant="default" leftSection={<IconUpload size={16} />} {...props}>
                        {form.values.logo === null ? 'Choose an image' : 'Choose another image'}
                      </Button>
                    )}
                  </FileButton>
                )}
                {isAllowed && form.values.logo !== null && (
                  <Button variant="subtle" onClick={() => form.setFieldValue('logo', null)}>
                    Remove
                  </Button>
                )}
                {!isAllowed && form.values.logo === null && <Dimmed>none</Dimmed>}
              </Group>
              <Text size="xs" c={form.errors.logo ? 'red' : 'dimmed'}>
                {form.errors.logo ?? 'PNG, JPEG, WebP or SVG, at most 64 KB'}
              </Text>
            </Stack>
            <Group grow align="flex-start">
              <ColorInput
                label="Color in light mode"
                format="hex"
                disabled={!isAllowed}
                eyeDropperButtonProps={{ 'aria-label': 'Pick from the screen' }}
                {...form.getInputProps('light')}
              />
              <ColorInput
                label="Color in dark mode"
                format="hex"
                disabled={!isAllowed}
                eyeDropperButtonProps={{ 'aria-label': 'Pick from the screen' }}
                {...form.getInputProps('dark')}
              />
            </Group>
            {!form.isDirty() &&
              warnings.map(({ path, message }) => (
                <Alert key={path.join('.')} color="yellow" title="Low contrast">
                  <Text size="sm">{message}</Text>
                </Alert>
              ))}
            <Group grow align="flex-start">
              <Select
                label="Theme"
                data={[
                  { value: 'system', label: "Like the user's system" },
                  { value: 'light', label: 'Always light' },
                  { value: 'dark', label: 'Always dark' },
                ]}
                allowDeselect={false}
                disabled={!isAllowed}
                {...form.getInputProps('theme')}
              />
              <Select
                label="Language"
                placeholder="Like the user's browser"
                data={languages}
                clearable
                disabled={!isAllowed}
                {...form.getInputProps('language')}
              />
            </Group>
            {save.isError && <FaultNotice error={save.error} />}
            <SaveBar
              isDirty={form.isDirty()}
              isSaving={save.isPending}
              onUndo={form.reset}
              isAllowed={isAllowed}
              otherwise="Only developers of this environment can change this."
            />
          </Stack>
        </form>
      </Card>
      <ConnectPreview look={form.values} />
    </SimpleGrid>
  );
}

function lookOf({ app_name: appName, logo, theme, colors, language }: ConnectSettings): Look {
  return {
    appName: appName ?? '',
    logo,
    theme,
    light: colors.light.primary,
    dark: colors.dark.primary,
    language,
  };
}

function dataAddressOf(file: File): Promise<string> {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(String(reader.result));
    reader.onerror = () => reject(reader.error ?? new Error('The file could not be read.'));
    reader.readAsDataURL(file);
  });
}

const grounds = {
  light: { page: '#ffffff', text: '#16191d', quiet: '#59616b', line: '#dee2e6' },
  dark: { page: '#1a1b1e', text: '#eceff2', quiet: '#a9b1ba', line: '#373a40' },
};

/** A preview of the brand on the connect page. It has no controls. */
function ConnectPreview({ look }: { look: Look }) {
  const [chosen, setChosen] = useState<'light' | 'dark'>('light');
  const scheme = look.theme === 'system' ? chosen : look.theme;
  const ground = grounds[scheme];
  const primary = /^#[0-9a-f]{6}$/i.test(look[scheme]) ? look[scheme] : '#2454d6';
  const name = look.appName.trim() === '' ? 'the application' : look.appName.trim();
  return (
    <Stack gap="xs">
      <Group justify="space-between" mih={36}>
        <Title order={2}>Preview</Title>
        {look.theme === 'system' && (
          <SegmentedControl
            size="xs"
            aria-label="Preview in"
            value={chosen}
            onChange={(value) => setChosen(value === 'dark' ? 'dark' : 'light')}
            data={[
              { value: 'light', label: 'Light' },
              { value: 'dark', label: 'Dark' },
            ]}
          />
        )}
      </Group>
      <Box className="framed" p="xl" style={{ background: ground.page }} data-testid="preview">
        <Stack
          gap="md"
          maw={360}
          mx="auto"
          p="lg"
          bdrs="md"
          style={{ background: ground.page, border: `1px solid ${ground.line}` }}
        >
          {(look.logo !== null || look.appName.trim() !== '') && (
            <Group gap="sm" wrap="nowrap">
              {look.logo !== null && <img src={look.logo} alt="" height={36} className="picked-logo" />}
              <Text fw={650} c={ground.text} className="wrap">
                {look.appName.trim()}
              </Text>
            </Group>
          )}
          <Text fw={650} size="lg" c={ground.text}>
            Connect Google Sheets
          </Text>
          <Text size="sm" c={ground.quiet}>
            {name} requests access to your Google Sheets account. Continue only if you opened this page from{' '}
            {name}.
          </Text>
          <Box
            ta="center"
            p={10}
            bdrs="md"
            fw={600}
            fz="sm"
            style={{ background: primary, color: wordsOn(primary) }}
          >
            Continue to Google Sheets
          </Box>
        </Stack>
      </Box>
    </Stack>
  );
}
