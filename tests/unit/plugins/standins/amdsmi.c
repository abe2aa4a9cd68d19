/* SPDX-License-Identifier: Apache-2.0 */
/* A stand-in for libamd_smi.so as ROCm 7.0.2 has it, under the bindings of the package amdsmi 7.0.2.
 *
 * GPUs sit at the PCI addresses in STANDIN_GPUS (`0000:05:00.0,0000:26:00.0`). STANDIN_BUSY is their load in per cent
 * (65535: not known), STANDIN_HOT whether the socket is throttled by heat (255: not known), STANDIN_CE and STANDIN_UE
 * their memory errors, STANDIN_MAJOR the library's version. What the bindings look up and nobody calls returns
 * AMDSMI_STATUS_NOT_SUPPORTED. Structures have the layout of amdsmi.h, with natural alignment.
 */
#include "standin.h"

#include <stdint.h>

enum { SUCCESS = 0, INVAL = 1, NOT_SUPPORTED = 2, NOT_INIT = 32, GPUS_MAX = 8 };

typedef struct {
    uint32_t gfx_activity, umc_activity, mm_activity, reserved[13];
} engine_usage_t;

typedef struct {
    uint64_t correctable_count, uncorrectable_count, deferred_count, reserved[5];
} error_count_t;

typedef struct {
    uint64_t reference_timestamp, violation_timestamp, acc[7], per[6];
    uint8_t active_prochot_thrm, active_ppt_pwr, active_socket_thrm, active_vr_thrm, active_hbm_thrm, active_clk, padding[2];
    uint64_t acc_xcp[4][8][8], per_xcp[4][8][8];
    uint8_t active_xcp[4][8][8];
    uint64_t reserved[3][8][8];
} violation_status_t;

typedef struct {
    uint32_t major, minor, release;
    const char *build;
} version_t;

static int initialised;

static const char *gpus(void) { return standin_text("STANDIN_GPUS", "0000:05:00.0"); }

static uint32_t count(void) {
    uint32_t found = *gpus() != '\0';
    for (const char *at = gpus(); (at = strchr(at, ',')) != NULL; at++) found++;
    return found < GPUS_MAX ? found : GPUS_MAX;
}

int amdsmi_init(uint64_t flags) {
    STANDIN_CALL(int);
    initialised = flags != 0;
    return SUCCESS;
}

int amdsmi_shut_down(void) {
    STANDIN_CALL(int);
    initialised = 0;
    return SUCCESS;
}

#ifndef WITHOUT_amdsmi_get_lib_version
int amdsmi_get_lib_version(version_t *version) {
    STANDIN_CALL(int);
    *version = (version_t){(uint32_t)standin_number("STANDIN_MAJOR", 26), 0, 2, "39589fda"};
    return SUCCESS;
}
#endif

int amdsmi_get_socket_handles(uint32_t *number, void **handles) {
    STANDIN_CALL(int);
    if (!initialised) return NOT_INIT;
    *number = count();
    for (uint32_t i = 0; handles != NULL && i < *number; i++) handles[i] = (void *)(uintptr_t)(i + 1);
    return SUCCESS;
}

int amdsmi_get_processor_handles(void *socket, uint32_t *number, void **handles) {
    STANDIN_CALL(int);
    if (!initialised) return NOT_INIT;
    *number = 1;
    if (handles != NULL) handles[0] = socket;
    return SUCCESS;
}

int amdsmi_get_gpu_device_bdf(void *handle, uint64_t *bdf) {
    unsigned domain, bus, device, function;
    STANDIN_CALL(int);
    const char *at = gpus();
    for (uintptr_t i = 1; i < (uintptr_t)handle; i++) at = strchr(at, ',') + 1;
    if (sscanf(at, "%x:%x:%x.%x", &domain, &bus, &device, &function) != 4) return INVAL;
    *bdf = (uint64_t)domain << 16 | bus << 8 | device << 3 | function;
    return SUCCESS;
}

int amdsmi_get_gpu_activity(void *handle, engine_usage_t *usage) {
    STANDIN_CALL(int);
    memset(usage, 0, sizeof *usage);
    usage->gfx_activity = (uint32_t)standin_number("STANDIN_BUSY", 37);
    return handle == NULL ? INVAL : SUCCESS;
}

int amdsmi_get_violation_status(void *handle, violation_status_t *status) {
    STANDIN_CALL(int);
    memset(status, 0, sizeof *status);
    status->active_socket_thrm = (uint8_t)standin_number("STANDIN_HOT", 0);
    status->active_prochot_thrm = status->active_vr_thrm = status->active_hbm_thrm = 255; /* not known of this part */
    status->active_ppt_pwr = 1;
    return handle == NULL ? INVAL : SUCCESS;
}

int amdsmi_get_gpu_total_ecc_count(void *handle, error_count_t *errors) {
    STANDIN_CALL(int);
    memset(errors, 0, sizeof *errors);
    errors->correctable_count = (uint64_t)standin_number("STANDIN_CE", 0);
    errors->uncorrectable_count = (uint64_t)standin_number("STANDIN_UE", 0);
    return handle == NULL ? INVAL : SUCCESS;
}

#define LACKING(name)                                                                                                  \
    int name(void) { return NOT_SUPPORTED; }
/* clang-format off */
LACKING(amdsmi_clean_gpu_local_data) LACKING(amdsmi_cpu_apb_disable) LACKING(amdsmi_cpu_apb_enable)
LACKING(amdsmi_first_online_core_on_cpu_socket) LACKING(amdsmi_free_name_value_pairs)
LACKING(amdsmi_get_afids_from_cper) LACKING(amdsmi_get_clk_freq) LACKING(amdsmi_get_clock_info)
LACKING(amdsmi_get_cpu_affinity_with_scope) LACKING(amdsmi_get_cpu_cclk_limit)
LACKING(amdsmi_get_cpu_core_boostlimit) LACKING(amdsmi_get_cpu_core_current_freq_limit)
LACKING(amdsmi_get_cpu_core_energy) LACKING(amdsmi_get_cpu_cores_per_socket)
LACKING(amdsmi_get_cpu_current_io_bandwidth) LACKING(amdsmi_get_cpu_current_xgmi_bw) LACKING(amdsmi_get_cpu_ddr_bw)
LACKING(amdsmi_get_cpu_dimm_power_consumption) LACKING(amdsmi_get_cpu_dimm_temp_range_and_refresh_rate)
LACKING(amdsmi_get_cpu_dimm_thermal_sensor) LACKING(amdsmi_get_cpu_family) LACKING(amdsmi_get_cpu_fclk_mclk)
LACKING(amdsmi_get_cpu_handles) LACKING(amdsmi_get_cpu_hsmp_driver_version) LACKING(amdsmi_get_cpu_hsmp_proto_ver)
LACKING(amdsmi_get_cpu_model) LACKING(amdsmi_get_cpu_model_name) LACKING(amdsmi_get_cpu_prochot_status)
LACKING(amdsmi_get_cpu_pwr_svi_telemetry_all_rails) LACKING(amdsmi_get_cpu_smu_fw_version)
LACKING(amdsmi_get_cpu_socket_c0_residency) LACKING(amdsmi_get_cpu_socket_count)
LACKING(amdsmi_get_cpu_socket_current_active_freq_limit) LACKING(amdsmi_get_cpu_socket_energy)
LACKING(amdsmi_get_cpu_socket_freq_range) LACKING(amdsmi_get_cpu_socket_lclk_dpm_level)
LACKING(amdsmi_get_cpu_socket_power) LACKING(amdsmi_get_cpu_socket_power_cap)
LACKING(amdsmi_get_cpu_socket_power_cap_max) LACKING(amdsmi_get_cpu_socket_temperature)
LACKING(amdsmi_get_cpucore_handles) LACKING(amdsmi_get_energy_count) LACKING(amdsmi_get_esmi_err_msg)
LACKING(amdsmi_get_fw_info) LACKING(amdsmi_get_gpu_accelerator_partition_profile)
LACKING(amdsmi_get_gpu_accelerator_partition_profile_config) LACKING(amdsmi_get_gpu_asic_info)
LACKING(amdsmi_get_gpu_available_counters) LACKING(amdsmi_get_gpu_bad_page_info)
LACKING(amdsmi_get_gpu_bad_page_threshold) LACKING(amdsmi_get_gpu_bdf_id) LACKING(amdsmi_get_gpu_board_info)
LACKING(amdsmi_get_gpu_busy_percent) LACKING(amdsmi_get_gpu_cache_info) LACKING(amdsmi_get_gpu_compute_partition)
LACKING(amdsmi_get_gpu_compute_process_gpus) LACKING(amdsmi_get_gpu_compute_process_info)
LACKING(amdsmi_get_gpu_compute_process_info_by_pid) LACKING(amdsmi_get_gpu_cper_entries)
LACKING(amdsmi_get_gpu_device_uuid) LACKING(amdsmi_get_gpu_driver_info) LACKING(amdsmi_get_gpu_ecc_count)
LACKING(amdsmi_get_gpu_ecc_enabled) LACKING(amdsmi_get_gpu_ecc_status) LACKING(amdsmi_get_gpu_enumeration_info)
LACKING(amdsmi_get_gpu_event_notification) LACKING(amdsmi_get_gpu_fan_rpms) LACKING(amdsmi_get_gpu_fan_speed)
LACKING(amdsmi_get_gpu_fan_speed_max) LACKING(amdsmi_get_gpu_id) LACKING(amdsmi_get_gpu_kfd_info)
LACKING(amdsmi_get_gpu_mem_overdrive_level) LACKING(amdsmi_get_gpu_memory_partition)
LACKING(amdsmi_get_gpu_memory_partition_config) LACKING(amdsmi_get_gpu_memory_reserved_pages)
LACKING(amdsmi_get_gpu_memory_total) LACKING(amdsmi_get_gpu_memory_usage) LACKING(amdsmi_get_gpu_metrics_header_info)
LACKING(amdsmi_get_gpu_metrics_info) LACKING(amdsmi_get_gpu_od_volt_curve_regions)
LACKING(amdsmi_get_gpu_od_volt_info) LACKING(amdsmi_get_gpu_overdrive_level) LACKING(amdsmi_get_gpu_pci_bandwidth)
LACKING(amdsmi_get_gpu_pci_replay_counter) LACKING(amdsmi_get_gpu_pci_throughput) LACKING(amdsmi_get_gpu_perf_level)
LACKING(amdsmi_get_gpu_pm_metrics_info) LACKING(amdsmi_get_gpu_power_profile_presets)
LACKING(amdsmi_get_gpu_process_isolation) LACKING(amdsmi_get_gpu_process_list)
LACKING(amdsmi_get_gpu_ras_block_features_enabled) LACKING(amdsmi_get_gpu_ras_feature_info)
LACKING(amdsmi_get_gpu_reg_table_info) LACKING(amdsmi_get_gpu_revision) LACKING(amdsmi_get_gpu_subsystem_id)
LACKING(amdsmi_get_gpu_subsystem_name) LACKING(amdsmi_get_gpu_topo_numa_affinity) LACKING(amdsmi_get_gpu_vbios_info)
LACKING(amdsmi_get_gpu_vendor_name) LACKING(amdsmi_get_gpu_virtualization_mode) LACKING(amdsmi_get_gpu_volt_metric)
LACKING(amdsmi_get_gpu_vram_info) LACKING(amdsmi_get_gpu_vram_usage) LACKING(amdsmi_get_gpu_vram_vendor)
LACKING(amdsmi_get_gpu_xcd_counter) LACKING(amdsmi_get_gpu_xgmi_link_status) LACKING(amdsmi_get_hsmp_metrics_table)
LACKING(amdsmi_get_hsmp_metrics_table_version) LACKING(amdsmi_get_link_metrics)
LACKING(amdsmi_get_link_topology_nearest) LACKING(amdsmi_get_minmax_bandwidth_between_processors)
LACKING(amdsmi_get_pcie_info) LACKING(amdsmi_get_power_cap_info) LACKING(amdsmi_get_power_info)
LACKING(amdsmi_get_processor_count_from_handles) LACKING(amdsmi_get_processor_handle_from_bdf)
LACKING(amdsmi_get_processor_handles_by_type) LACKING(amdsmi_get_processor_info) LACKING(amdsmi_get_processor_type)
LACKING(amdsmi_get_soc_pstate) LACKING(amdsmi_get_socket_info) LACKING(amdsmi_get_temp_metric)
LACKING(amdsmi_get_threads_per_core) LACKING(amdsmi_get_utilization_count) LACKING(amdsmi_get_xgmi_info)
LACKING(amdsmi_get_xgmi_plpd) LACKING(amdsmi_gpu_control_counter) LACKING(amdsmi_gpu_counter_group_supported)
LACKING(amdsmi_gpu_create_counter) LACKING(amdsmi_gpu_destroy_counter) LACKING(amdsmi_gpu_driver_reload)
LACKING(amdsmi_gpu_read_counter) LACKING(amdsmi_gpu_validate_ras_eeprom) LACKING(amdsmi_gpu_xgmi_error_status)
LACKING(amdsmi_init_gpu_event_notification) LACKING(amdsmi_is_P2P_accessible)
LACKING(amdsmi_is_gpu_power_management_enabled) LACKING(amdsmi_reset_gpu) LACKING(amdsmi_reset_gpu_fan)
LACKING(amdsmi_reset_gpu_xgmi_error) LACKING(amdsmi_set_clk_freq) LACKING(amdsmi_set_cpu_core_boostlimit)
LACKING(amdsmi_set_cpu_df_pstate_range) LACKING(amdsmi_set_cpu_gmi3_link_width_range)
LACKING(amdsmi_set_cpu_pcie_link_rate) LACKING(amdsmi_set_cpu_pwr_efficiency_mode)
LACKING(amdsmi_set_cpu_socket_boostlimit) LACKING(amdsmi_set_cpu_socket_lclk_dpm_level)
LACKING(amdsmi_set_cpu_socket_power_cap) LACKING(amdsmi_set_cpu_xgmi_width)
LACKING(amdsmi_set_gpu_accelerator_partition_profile) LACKING(amdsmi_set_gpu_clk_limit)
LACKING(amdsmi_set_gpu_clk_range) LACKING(amdsmi_set_gpu_compute_partition)
LACKING(amdsmi_set_gpu_event_notification_mask) LACKING(amdsmi_set_gpu_fan_speed)
LACKING(amdsmi_set_gpu_memory_partition) LACKING(amdsmi_set_gpu_memory_partition_mode)
LACKING(amdsmi_set_gpu_od_clk_info) LACKING(amdsmi_set_gpu_od_volt_info) LACKING(amdsmi_set_gpu_overdrive_level)
LACKING(amdsmi_set_gpu_pci_bandwidth) LACKING(amdsmi_set_gpu_perf_determinism_mode)
LACKING(amdsmi_set_gpu_perf_level) LACKING(amdsmi_set_gpu_power_profile) LACKING(amdsmi_set_gpu_process_isolation)
LACKING(amdsmi_set_power_cap) LACKING(amdsmi_set_soc_pstate) LACKING(amdsmi_set_xgmi_plpd)
LACKING(amdsmi_status_code_to_string) LACKING(amdsmi_stop_gpu_event_notification) LACKING(amdsmi_topo_get_link_type)
LACKING(amdsmi_topo_get_link_weight) LACKING(amdsmi_topo_get_numa_node_number) LACKING(amdsmi_topo_get_p2p_status)
